#include "runtime/roles/group.hpp"

#include <stdexcept>
#include <utility>

#include "runtime/core/role.hpp"
#include "runtime/protocol/message_table.hpp"

namespace paceline::roles {

using namespace protocol;

namespace {

engine::StepResult run_resizing(KvShare& share, engine::StepRunner& runner,
                                const engine::Step& step) {
  share.shrink_before(step.kv);
  const engine::StepResult result = runner.run(step);
  share.grow_after(step.kv);
  return result;
}

}  // namespace

Group::Group(Mailbox& mailbox, engine::StepRunner& runner, KvShare& share,
             const std::vector<int>& members, std::uint32_t epoch)
    : mailbox_(mailbox), runner_(runner), share_(share), epoch_(epoch) {
  for (const int member : members) members_.push_back({member, Address::Port::role});
}

void Group::tell(const Message& command) {
  if (!members_.empty()) send(encode(command));
}

/// Sends a command to all members, and Lead before the first command. A member that has yet to take
/// its place would drop Lead, but by the first command all ranks have taken their places.
void Group::send(std::span<const std::byte> bytes) {
  if (!std::exchange(leads_, true)) {
    for (const Address member : members_) mailbox_.send(member, encode(Lead{epoch_}));
  }
  for (const Address member : members_) mailbox_.send(member, bytes);
  mailbox_.deliver(members_);  // now, because a step's collectives wait for the members
}

engine::StepResult Group::run(const engine::Step& step) {
  if (!members_.empty()) send(encode_step(step));
  return run_resizing(share_, runner_, step);
}

std::vector<std::int16_t> Group::read_routing(std::span<const kv::Place> places) {
  if (share_.divided() && !places.empty()) tell(ReadRouting{{places.begin(), places.end()}});
  return runner_.read_routing(places);
}

void Group::finish(const std::optional<policy::Placement>& next) {
  tell(next ? Message(Place{*next}) : Message(Finish{}));
}

Member::Member(Mailbox& mailbox, engine::StepRunner& runner, KvShare& share, int leader,
               std::uint32_t epoch, const Recorder& recorder)
    : mailbox_(mailbox),
      runner_(runner),
      share_(share),
      leader_{leader},
      epoch_(epoch),
      meter_(Role::verifier_member, recorder, mailbox) {}

bool leads(const Envelope& envelope, std::uint32_t epoch) {
  const std::optional<Message> message = decode_if_message(envelope.bytes);
  const auto* lead = message ? std::get_if<Lead>(&*message) : nullptr;
  return lead != nullptr && lead->epoch == epoch;
}

Turn Member::turn() {
  Turn turn;
  while (const std::optional<Envelope> envelope = mailbox_.poll()) {
    turn.worked = true;
    if (envelope->from != leader_) continue;  // a late message for an earlier role of this rank
    if (!led_) {
      led_ = leads(*envelope, epoch_);
      continue;
    }
    Message message = decode(envelope->bytes);
    const auto obey = [this](Address, const auto& command) { share_.obey(command); };
    const Receipt receipt = receive(
        envelope->from, message,
        on<RunStep>(anybody, [this](Address, RunStep& command) { step(command.step); }),
        on<ReadRouting>(
            anybody,
            [this](Address, ReadRouting& command) { (void)runner_.read_routing(command.places); }),
        on<MoveKv>(anybody, obey), on<StoreKv>(anybody, obey), on<RestoreKv>(anybody, obey),
        on<DropKv>(anybody, obey), on<ForeseeKv>(anybody, obey),
        on<Place>(anybody,
                  [this](Address, Place& place) {
                    next_ = std::move(place.placement);
                    over_ = true;
                  }),
        on<Finish>(anybody, [this](Address, Finish&) { over_ = true; }));
    if (receipt != Receipt::handled)
      throw std::logic_error("a group's member got a message that it does not take");
    if (over_) return turn;
    report();  // not only after the loop: steps can follow one another without a pause
  }
  report();
  return turn;
}

/// Runs a step, and discards its tokens: the leader has the same tokens and reports them.
void Member::step(const engine::Step& step) {
  meter_.begin();
  const engine::StepResult result = run_resizing(share_, runner_, step);
  if (!step.empty()) meter_.end(result);  // an empty step only works on KV blocks
}

void Member::report() {
  for (const KvMoved& moved : share_.take_ended()) mailbox_.send(leader_, encode(moved));
}

}  // namespace paceline::roles
