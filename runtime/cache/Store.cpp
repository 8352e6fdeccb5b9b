#include "runtime/cache/Store.h"
#include "runtime/support/Fork.h"

namespace cermet {

Result<Store::Payload> Store::get(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make) {
  auto fresh = std::make_shared<Slot>();
  std::unique_lock lock(mutex_);
  const auto [position, first] = slots_[static_cast<int>(kind)].try_emplace(key, std::move(fresh));
  const std::shared_ptr<Slot> slot = position->second;
  if (first) {
    lock.unlock();
    return fill(kind, key, slot, [&] { return find(kind, key, sources, make); });
  }
  finished_.wait(lock, [&] { return slot->done; });
  if (!slot->status.ok())
    return slot->status;
  Counters::raise(sources.memory);
  return slot->found.payload;
}

Result<Store::Payload> Store::mend(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make,
                                   const Payload& refused, const Status& why) {
  auto& slots = slots_[static_cast<int>(kind)];
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto position = slots.find(key);
    if (position == slots.end()) // another thread could not mend it
      return why;
    const std::shared_ptr<Slot> slot = position->second;
    if (!slot->done) {
      finished_.wait(lock, [&] { return slot->done; });
      continue;
    }
    const Found found = slot->found;
    if (found.payload != refused) // another thread did
      return found.payload;
    if (found.file.empty())
      return why;
    const auto fresh = std::make_shared<Slot>();
    position->second = fresh;
    lock.unlock();
    Result<Payload> made = fill(kind, key, fresh, [&] { return remake(kind, key, sources, make, found, why); });
    return made.ok() && *made == refused ? Result<Payload>(why) : made;
  }
}

// Whatever happens here, those who wait must be told.
Result<Store::Payload> Store::fill(EntryKind kind, const std::string& key, const std::shared_ptr<Slot>& slot,
                                   const Finder& find) {
  Result<Found> found = error(CERMET_INTERNAL, "out of memory while an answer was made");
  try {
    found = find();
  } catch (const std::exception& failure) {
    found = error(CERMET_INTERNAL, "{}", failure.what());
  } catch (...) {
    found = error(CERMET_INTERNAL, "something that is no std::exception was thrown while an answer was made");
  }
  std::lock_guard lock(mutex_);
  slot->done = true;
  if (found.ok()) {
    slot->found = *found;
  } else {
    slot->status = found.status();
    slots_[static_cast<int>(kind)].erase(key);
  }
  finished_.notify_all();
  return found.ok() ? Result<Payload>(std::move(found->payload)) : found.status();
}

void Store::forgetUnfinished() {
  renew(finished_);
  for (auto& slots : slots_)
    std::erase_if(slots, [](const auto& entry) { return !entry.second->done; });
}

// What the directory gave.
Store::Found Store::stored(Entry entry, const Sources& sources) {
  Counters::raise(sources.directory);
  return {std::make_shared<const std::string>(std::move(entry.payload)), std::move(entry.file)};
}

Result<Store::Found> Store::find(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make) {
  if (std::optional<Entry> entry = settings_.reads ? directory_.read(kind, key) : std::nullopt)
    return stored(std::move(*entry), sources);
  Counters::raise(counters_.cacheMisses);
  Directory::Turn turn =
      settings_.reads ? directory_.turn(kind, key, [](const Entry&) { return true; }) : Directory::Turn();
  if (turn.entry)
    return stored(std::move(*turn.entry), sources);
  Entry entry;
  entry.kind = kind;
  entry.key = key;
  if (Status failure = make(entry); !failure.ok()) {
    std::optional<Entry> other =
        settings_.reads && kind == EntryKind::Kernel ? directory_.readOfAnyNvrtc(key) : std::nullopt;
    return other ? Result<Found>(stored(std::move(*other), sources)) : failure;
  }
  return keep(std::move(entry), sources);
}

Store::Found Store::keep(Entry entry, const Sources& sources) {
  Counters::raise(sources.made);
  directory_.write(entry);
  return {std::make_shared<const std::string>(std::move(entry.payload)), ""};
}

Result<Store::Found> Store::remake(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make,
                                   const Found& refused, const Status& why) {
  // Another process may have met the same entry before.
  Directory::Turn turn =
      directory_.turn(kind, key, [&](const Entry& entry) { return entry.payload != *refused.payload; });
  if (turn.entry)
    return stored(std::move(*turn.entry), sources);
  Entry entry;
  entry.kind = kind;
  entry.key = key;
  if (Status failure = make(entry); !failure.ok())
    return error(failure.code(), "{}; it came from the cache directory and cannot be made again: {}", why.message(),
                 failure.message());
  if (entry.payload == *refused.payload) {
    Counters::raise(sources.made);
    return Found{refused.payload, ""};
  }
  directory_.moveAside(kind, refused.file, why.message());
  return keep(std::move(entry), sources);
}

} // namespace cermet
