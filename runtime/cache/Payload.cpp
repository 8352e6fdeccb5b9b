#include "runtime/cache/Payload.h"
#include "runtime/device/Elf.h"
#include "runtime/device/HostImage.h"
#include "runtime/plan/Plan.h"
#include <nlohmann/json.hpp>

namespace cermet {

namespace {

Status checkJson(std::string_view payload, const char* format) {
  const auto json = nlohmann::json::parse(payload, nullptr, false);
  if (json.is_object() && json.value("format", nlohmann::json()) == format)
    return {};
  return error(CERMET_NOT_FOUND, "its payload is no JSON of format '{}'", format);
}

} // namespace

Status checkPayload(const Entry& entry) {
  return checkAnswer(entry.kind, entry.payload);
}

Status checkAnswer(EntryKind kind, std::string_view payload) {
  switch (kind) {
  case EntryKind::Plan: {
    const Result<Plan> plan = parsePlan(std::string(payload));
    return plan.ok() ? Status() : Status(CERMET_NOT_FOUND, plan.status().message());
  }
  case EntryKind::Match:
    return checkJson(payload, "cermet.match.1");
  case EntryKind::Gradient:
    return checkJson(payload, "cermet.gradient.1");
  case EntryKind::Kernel:
    return {};
  }
  return {};
}

Status checkPayloadThoroughly(const Entry& entry) {
  if (entry.kind != EntryKind::Kernel)
    return checkPayload(entry);
  if (entry.nvrtcVersion > 0)
    return checkElf(entry.payload, kCudaMachine);
  const auto loaded = HostImage::load(entry.payload);
  return loaded.ok() ? Status() : loaded.status();
}

} // namespace cermet
