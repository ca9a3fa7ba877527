# shellcheck shell=bash
# A real two-node Slurm on this machine, of Debian's packages; sourced by the tests here. Its state is
# in $cluster_dir, its ports are free ones, and nothing of it outlives the test.
#
#   cluster_start         exits 77 (skipped), saying why, where it cannot run
#   submit ARGS...        jobscripts/rollout.sbatch on both nodes, two ranks each; sets $job
#   follow JOB            waits for its end, printing each change of state
#   state_of JOB          COMPLETED, FAILED, ...
#   plain DIR ARGS...     paceline rollout ARGS on one rank without Slurm; sets $plain_digest
#   fail WORDS...         ends the test

cluster_dir=''

cluster_require() {
  local program
  if [[ $EUID -ne 0 ]]; then
    echo "SKIP: a private Slurm needs root (slurmd starts jobs as their owner)"
    exit 77
  fi
  for program in munged slurmctld slurmd sbatch mpirun; do
    if ! PATH=$PATH:/usr/sbin command -v "$program" >/dev/null; then
      echo "SKIP: $program is not installed (jobscripts/install-deps.sh --tests installs it)"
      exit 77
    fi
  done
}

cluster_start() {
  cluster_require
  PATH=$PATH:/usr/sbin
  cluster_dir=$(mktemp -d /tmp/paceline-slurm.XXXXXX)
  chmod 755 "$cluster_dir"
  trap cluster_stop EXIT
  trap 'exit 130' INT TERM
  # A test that hangs must still clean up, so it ends itself before CTest would kill it.
  (sleep 600 && echo "FAILED: not done after 600 s" && kill "$$" && pkill -P "$$") 2>/dev/null &
  cluster_watchdog=$!
  mkdir "$cluster_dir"/{state,n1,n2}

  local ports host
  host=$(hostname -s)
  read -ra ports < <(python3 -c '
import socket
held = [socket.socket() for _ in range(3)]
for s in held: s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in held])')

  export SLURM_CONF=$cluster_dir/slurm.conf
  # cred_expire is also how long a requeued job waits before it starts again: 120 s unless set.
  cat >"$SLURM_CONF" <<EOF
ClusterName=paceline
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmctldPidFile=$cluster_dir/slurmctld.pid
SlurmctldLogFile=$cluster_dir/slurmctld.log
StateSaveLocation=$cluster_dir/state
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$cluster_dir/munge.socket,cred_expire=5
CryptoType=crypto/munge
SlurmdSpoolDir=$cluster_dir/%n
SlurmdPidFile=$cluster_dir/%n.pid
SlurmdLogFile=$cluster_dir/%n.log
SlurmdParameters=config_overrides
TmpFS=$cluster_dir/%n
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$cluster_dir/jobs.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=2
ReturnToService=2
JobRequeue=1
KillWait=10
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=4 RealMemory=2000
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=4 RealMemory=2000
PartitionName=test Nodes=ALL Default=YES MaxTime=20
EOF

  head -c 1024 /dev/urandom >"$cluster_dir/munge.key"
  chmod 400 "$cluster_dir/munge.key"
  munged --socket="$cluster_dir/munge.socket" --key-file="$cluster_dir/munge.key" \
    --pid-file="$cluster_dir/munged.pid" --log-file="$cluster_dir/munged.log" \
    --seed-file="$cluster_dir/munged.seed"
  slurmctld
  slurmd -N n1
  slurmd -N n2

  # Both nodes are this host: shared memory segments, named by host, would collide.
  export OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
  export UCX_TLS=tcp,self UCX_NET_DEVICES=lo
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export PACELINE_LAUNCH_ARGS="--oversubscribe --bind-to none"

  local i
  for i in {1..30}; do
    if [[ $(sinfo -h -o '%T %D' 2>/dev/null) == "idle 2" ]]; then
      sinfo -N
      return
    fi
    sleep 1
  done
  echo "the two nodes are not up after $i s"
  exit 1
}

cluster_stop() {
  local rc=$? name pid
  if [[ $rc -ne 0 ]]; then
    echo "failed with $rc; what the daemons said last:"
    tail -n 25 "$cluster_dir"/*.log || true
  fi
  trap - EXIT
  trap '' INT TERM
  pkill -P "$cluster_watchdog" || true  # its sleep, which would hold our output open
  scancel -u root 2>/dev/null || true
  for name in n1 n2 slurmctld munged; do
    pid=$(cat "$cluster_dir/$name.pid" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null || continue
    timeout 10 tail --pid="$pid" -f /dev/null || kill -9 "$pid" || true
  done
  rm -rf "$cluster_dir"
  exit "$rc"
}

fail() {
  echo "FAILED: $*"
  exit 1
}

# shellcheck disable=SC2034  # for the tests
plain() {
  "$PACELINE_EXE" rollout "${@:2}" --output "$1" --set engine.threads=1 2>"$1.log" ||
    { cat "$1.log"; fail "the run on one rank"; }
  plain_digest=$("$PACELINE_EXE" digest "$1")
}

submit() {
  job=$(sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --time=10 \
    --output="$cluster_dir/job-%j.log" jobscripts/rollout.sbatch "$@")
  echo "submitted job $job"
}

state_of() { scontrol show job -o "$1" | grep -oP 'JobState=\K\w+'; }

follow() {
  local line='' last='' state
  while true; do
    state=$(state_of "$1")
    line=$(squeue -h -j "$1" -o '%T %r' 2>/dev/null || true)
    if [[ -n $line && $line != "$last" ]]; then
      echo "$(date +%T) squeue: job $1 $line"
      last=$line
    fi
    case $state in
      PENDING | CONFIGURING | RUNNING | COMPLETING | REQUEUED) sleep 1 ;;
      *) break ;;
    esac
  done
  scontrol show job "$1" | grep -E 'JobState|Restarts|StartTime|NodeList=n'
}
