#include "runtime/Store.h"
#include "runtime/Fork.h"

namespace cermet {

Result<Store::Payload> Store::get(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make) {
  auto& slots = slots_[static_cast<int>(kind)];
  auto fresh = std::make_shared<Slot>();
  std::unique_lock lock(mutex_);
  auto [position, first] = slots.try_emplace(key, std::move(fresh));
  const std::shared_ptr<Slot> slot = position->second;
  if (!first) {
    finished_.wait(lock, [&] { return slot->done; });
    if (!slot->status.ok())
      return slot->status;
    Counters::raise(sources.memory);
    return slot->payload;
  }
  lock.unlock();

  // Whatever happens here, those who wait must be told.
  Result<Payload> found = error(CERMET_INTERNAL, "out of memory while an answer was made");
  try {
    found = find(kind, key, sources, make);
  } catch (const std::exception& failure) {
    found = error(CERMET_INTERNAL, "{}", failure.what());
  } catch (...) {
    found = error(CERMET_INTERNAL, "something that is no std::exception was thrown while an answer was made");
  }

  lock.lock();
  slot->done = true;
  if (found.ok()) {
    slot->payload = *found;
  } else {
    slot->status = found.status();
    slots.erase(key);
  }
  finished_.notify_all();
  return found;
}

void Store::forgetUnfinished() {
  renew(finished_);
  for (auto& slots : slots_)
    std::erase_if(slots, [](const auto& entry) { return !entry.second->done; });
}

Result<Store::Payload> Store::find(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make) {
  if (std::optional<Entry> stored = readsDirectory_ ? directory_.read(kind, key) : std::nullopt) {
    Counters::raise(sources.directory);
    return std::make_shared<const std::string>(std::move(stored->payload));
  }
  Entry entry;
  entry.kind = kind;
  entry.key = key;
  if (Status failure = make(entry); !failure.ok()) {
    std::optional<Entry> other =
        readsDirectory_ && kind == EntryKind::Kernel ? directory_.readOfAnyNvrtc(key) : std::nullopt;
    if (!other)
      return failure;
    Counters::raise(sources.directory);
    return std::make_shared<const std::string>(std::move(other->payload));
  }
  Counters::raise(sources.made);
  directory_.write(entry);
  return std::make_shared<const std::string>(std::move(entry.payload));
}

} // namespace cermet
