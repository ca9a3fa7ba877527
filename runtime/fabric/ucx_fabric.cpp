#include "runtime/fabric/ucx_fabric.hpp"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "runtime/core/wire.hpp"
#include "runtime/fabric/backoff.hpp"
#include "runtime/fabric/ucx_block_transport.hpp"

namespace paceline::fabric {
namespace {

/// A rank's addresses, encoded for the others.
std::vector<std::byte> introduce(std::uint64_t run, std::span<const MailboxPlace> boxes,
                                 std::span<const std::byte> blocks) {
  WireWriter writer;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  writer.put_all(run, std::string(host), std::vector(blocks.begin(), blocks.end()),
                 static_cast<std::uint32_t>(boxes.size()));
  for (const MailboxPlace& box : boxes) {
    writer.put_all(box.at, box.worker);
  }
  return writer.take();
}

struct Box {
  Box(const UcxContext& context, Address me, const MailboxSettings& settings)
      : mailbox(context, me, settings), at(me) {}
  UcxMailbox mailbox;
  Address at;
  std::unique_ptr<Mailbox> wrapped;  ///< stands in for the mailbox in tests
};

}  // namespace

struct UcxFabric::Holdings {
  UcxContext context;
  std::vector<std::unique_ptr<Box>> boxes;
  std::unique_ptr<UcxBlockTransport> blocks;
};

UcxFabric::UcxFabric(const MpiEnvironment& mpi, std::span<const Address::Port> ports,
                     FabricSettings settings)
    : mpi_(mpi), ucx_(new Holdings{{mpi.size(), settings.detect_failures}, {}, {}}) {
  for (const Address::Port port : ports) {
    Box& box = *ucx_->boxes.emplace_back(
        std::make_unique<Box>(ucx_->context, Address{mpi.rank(), port}, settings.mailbox));
    if (settings.wrap) box.wrapped = settings.wrap(box.mailbox);
  }
  ucx_->blocks =
      std::make_unique<UcxBlockTransport>(ucx_->context, mpi.rank(), mailbox(Address::Port::role));
  for (const auto& box : ucx_->boxes) {
    box->mailbox.on_lost(
        [this](int rank, const std::string& why) { ucx_->blocks->lose(rank, why); });
  }
}

UcxFabric::~UcxFabric() {
  if (closed_) return;
  ucx_->blocks->stop();
  static auto* const left = new std::vector<std::unique_ptr<Holdings>>;  // until the process ends
  left->push_back(std::move(ucx_));
}

void UcxFabric::connect() {
  std::vector<MailboxPlace> mine;
  for (const auto& box : ucx_->boxes)
    mine.push_back({box->at, "", box->mailbox.worker().address()});
  const std::uint64_t random =
      (std::uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  const auto all = mpi_.all_gather(introduce(random, mine, ucx_->blocks->worker().address()));

  std::uint64_t run = 0;
  std::vector<MailboxPlace> mailboxes;
  std::vector<TransportPlace> transports;
  for (const std::vector<std::byte>& rank : all) {
    WireReader reader(rank);
    std::uint64_t its_random = 0;
    reader.get(its_random);
    if (transports.empty()) run = its_random;  // rank 0's number
    TransportPlace& transport = transports.emplace_back();
    reader.get(transport.host);
    reader.get(transport.worker);
    std::uint32_t count = 0;
    reader.get(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      MailboxPlace& place = mailboxes.emplace_back();
      place.host = transport.host;
      reader.get_all(place.at, place.worker);
    }
  }
  for (const auto& box : ucx_->boxes) box->mailbox.open(run, mailboxes);
  ucx_->blocks->open(run, std::move(transports));
}

Mailbox& UcxFabric::mailbox(Address::Port port) {
  const auto box = std::find_if(ucx_->boxes.begin(), ucx_->boxes.end(),
                                [&](const auto& candidate) { return candidate->at.port == port; });
  if (box == ucx_->boxes.end()) throw std::logic_error("this rank has no mailbox of that port");
  if ((*box)->wrapped) return *(*box)->wrapped;
  return (*box)->mailbox;
}

BlockTransport& UcxFabric::blocks() { return *ucx_->blocks; }

// All waits make progress, as other ranks may need it to get this far.
void UcxFabric::close() {
  ucx_->blocks->stop();
  std::vector<UcxWorker*> workers{&ucx_->blocks->worker()};
  for (const auto& box : ucx_->boxes) workers.push_back(&box->mailbox.worker());

  const auto drain = [&] {
    ucx_->blocks->worker().progress();
    bool all = true;
    for (const auto& box : ucx_->boxes) all = box->mailbox.drained() && all;
    return all;
  };
  Backoff backoff;
  while (!drain()) backoff.pause();
  for (UcxWorker* worker : workers) worker->expect_partings();
  mpi_.barrier([&] { drain(); });

  // All ranks have sent everything; only closing is left.
  for (UcxWorker* worker : workers) worker->begin_close();
  const auto part = [&] {
    bool all = true;
    for (UcxWorker* worker : workers) {
      worker->progress();
      all = worker->closed() && all;
    }
    return all;
  };
  backoff.reset();
  while (!part()) backoff.pause();
  mpi_.barrier([&] { part(); });
  closed_ = true;
}

}  // namespace paceline::fabric
