#include "runtime/cache/Store.h"
#include "runtime/support/Fork.h"
#include <algorithm>

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
  waitFor(*slot, kind, key, lock);
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
      waitFor(*slot, kind, key, lock);
      continue;
    }
    const Found found = slot->found;
    if (found.payload != refused) // another thread did
      return found.payload;
    if (found.origin == Found::Origin::Made)
      return why;
    const auto fresh = std::make_shared<Slot>();
    position->second = fresh;
    lock.unlock();
    Result<Payload> made = fill(kind, key, fresh, [&] { return remake(kind, key, sources, make, found, why); });
    return made.ok() && *made == refused ? Result<Payload>(why) : made;
  }
}

// For another thread of this process.
void Store::waitFor(const Slot& slot, EntryKind kind, const std::string& key, std::unique_lock<std::mutex>& lock) {
  if (slot.done)
    return;
  const Range range(settings_.ranges, RangeKind::Wait, [&] { return title({kind, key, "", 0, ""}); });
  finished_.wait(lock, [&] { return slot.done; });
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
  renew(foreign_);
  for (auto& slots : slots_)
    std::erase_if(slots, [](const auto& entry) { return !entry.second->done; });
}

std::vector<Entry> Store::all() {
  std::vector<Entry> entries;
  std::lock_guard lock(mutex_);
  for (EntryKind kind : kEntryKinds)
    for (const auto& [key, slot] : slots_[static_cast<int>(kind)])
      if (slot->done && slot->found.payload)
        entries.push_back({kind, key, std::string(*slot->found.payload), slot->found.nvrtcVersion, ""});
  return entries;
}

void Store::noteFound(EntryKind kind, const std::string& key, size_t bytes, const char* source) const {
  if (log_.isListenedTo())
    log_.tell(CERMET_EVENT_FOUND, name(kind), title({kind, key, "", 0, ""}), source, 0, bytes);
}

Store::Found Store::fromDirectory(Entry entry, const Sources& sources) {
  Counters::raise(sources.directory);
  noteFound(entry.kind, entry.key, entry.payload.size(), "directory");
  return {hold(std::move(entry.payload)), entry.nvrtcVersion, Found::Origin::Directory, std::move(entry.file)};
}

std::optional<Store::Found> Store::stored(EntryKind kind, const std::string& key, const Sources& sources) {
  if (!settings_.reads)
    return std::nullopt;
  const auto damaged = [&](const std::string& what) {
    Counters::raise(counters_.cacheFailures);
    log_.warnOnce("damaged pack", what);
  };
  if (const auto packed = settings_.packs.read(kind, key, settings_.nvrtcVersion, damaged)) {
    Counters::raise(sources.packs);
    noteFound(kind, key, packed->payload->size(), "pack");
    Counters::raise(counters_.cacheBytesRead, key.size() + packed->payload->size());
    return Found{packed->payload, packed->nvrtcVersion, Found::Origin::Pack};
  }
  if (std::optional<Entry> entry = directory_.read(kind, key))
    return fromDirectory(std::move(*entry), sources);
  return std::nullopt;
}

// What would make it, where that is allowed.
static std::string commandFor(const Entry& entry) {
  constexpr std::string_view kWord = "target ";
  std::string target = title(entry);
  if (target.starts_with(kWord))
    target.erase(0, kWord.size());
  target.resize(std::min(target.find_first_of(": "), target.size()));
  if (entry.kind == EntryKind::Match || entry.kind == EntryKind::Gradient)
    return "cermet compile GRAPH --frontend -o more.cpack";
  return fmt::format("cermet compile GRAPH -t {} -o more.cpack", target);
}

Status Store::notStored(EntryKind kind, const std::string& key) const {
  const Entry entry{kind, key, "", 0, ""};
  std::string asked = settings_.packs.empty() ? "no pack" : fmt::format("packs {}", settings_.packs.names());
  asked += directory_.path().empty() ? ", no directory" : fmt::format(", directory '{}'", directory_.path());
  if (const std::string foreign = settings_.packs.foreign(); !foreign.empty())
    asked += fmt::format(" ({})", foreign);
  return error(CERMET_NOT_STORED,
               "the {} of '{}' ({}) is not stored, and CERMET_CACHE=only lets nothing be made; asked were: {}. Where "
               "it may be made, `{}` makes it, and so does `with cermet.record(\"more.cpack\"):` around what asks in "
               "Python; without the device, `python -m cermet capture`",
               name(kind), title(entry), entryFileName(key), asked, commandFor(entry));
}

Result<Store::Found> Store::find(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make) {
  if (std::optional<Found> found = stored(kind, key, sources))
    return std::move(*found);
  Counters::raise(counters_.cacheMisses);
  const bool anyNvrtc = settings_.reads && kind == EntryKind::Kernel;
  if (settings_.only) {
    std::optional<Entry> other = anyNvrtc ? directory_.readOfAnyNvrtc(key) : std::nullopt;
    return other ? Result<Found>(fromDirectory(std::move(*other), sources)) : notStored(kind, key);
  }
  std::call_once(foreign_, [&] {
    if (const std::string foreign = settings_.packs.foreign(); !foreign.empty())
      log_.warnOnce("pack of another build", foreign + "; it serves nothing, make it again with this one");
  });
  Directory::Turn turn =
      settings_.reads ? directory_.turn(kind, key, [](const Entry&) { return true; }) : Directory::Turn();
  if (turn.entry)
    return fromDirectory(std::move(*turn.entry), sources);
  Entry entry;
  entry.kind = kind;
  entry.key = key;
  if (Status failure = make(entry); !failure.ok()) {
    std::optional<Entry> other = anyNvrtc ? directory_.readOfAnyNvrtc(key) : std::nullopt;
    return other ? Result<Found>(fromDirectory(std::move(*other), sources)) : failure;
  }
  return keep(std::move(entry), sources);
}

Store::Found Store::keep(Entry entry, const Sources& sources) {
  Counters::raise(sources.made);
  directory_.write(entry);
  return {hold(std::move(entry.payload)), entry.nvrtcVersion};
}

Result<Store::Found> Store::remake(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make,
                                   const Found& refused, const Status& why) {
  const char* whence = refused.origin == Found::Origin::Pack ? "a pack" : "the cache directory";
  if (settings_.only)
    return error(why.code(), "{}; it came from {} and CERMET_CACHE=only lets nothing be made", why.message(), whence);
  // Another process may have met the same entry before.
  Directory::Turn turn =
      directory_.turn(kind, key, [&](const Entry& entry) { return entry.payload != *refused.payload; });
  if (turn.entry)
    return fromDirectory(std::move(*turn.entry), sources);
  Entry entry;
  entry.kind = kind;
  entry.key = key;
  if (Status failure = make(entry); !failure.ok())
    return error(failure.code(), "{}; it came from {} and cannot be made again: {}", why.message(), whence,
                 failure.message());
  if (entry.payload == *refused.payload) {
    Counters::raise(sources.made);
    return Found{refused.payload, entry.nvrtcVersion};
  }
  if (refused.origin == Found::Origin::Directory)
    directory_.moveAside(kind, refused.file, why.message());
  else
    Counters::raise(counters_.cacheFailures);
  return keep(std::move(entry), sources);
}

} // namespace cermet
