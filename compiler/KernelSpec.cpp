#include "compiler/KernelSpec.h"
#include "compiler/TextLines.h"
#include <fmt/format.h>

namespace cermet {
namespace {

constexpr const char* kFirstLine = "cermet.kernel.1";

struct Setting {
  const char* key;
  int Schedule::*field;
};
constexpr Setting kSettings[] = {{"threads", &Schedule::threads},
                                 {"threads_per_row", &Schedule::threadsPerRow},
                                 {"vector", &Schedule::vector},
                                 {"vectors_per_thread", &Schedule::vectorsPerThread},
                                 {"stages", &Schedule::stages},
                                 {"blocks_per_sm", &Schedule::blocksPerSm},
                                 {"resident_blocks", &Schedule::residentBlocks},
                                 {"shared_bytes", &Schedule::sharedBytes}};

std::string check(const Schedule& schedule) {
  if (schedule.threads < 1 || schedule.threads > 1024 || schedule.threads % 32 != 0)
    return fmt::format("threads is {}, expected a multiple of 32 up to 1024", schedule.threads);
  int perRow = schedule.threadsPerRow;
  bool power = perRow >= 1 && (perRow & (perRow - 1)) == 0;
  if (perRow > schedule.threads || (perRow != schedule.threads && !power) || perRow < 1)
    return fmt::format("threads_per_row is {}, expected a power of two up to threads ({}) or threads itself", perRow,
                       schedule.threads);
  if (schedule.vector < 1 || schedule.vector > 16 || (schedule.vector & (schedule.vector - 1)) != 0)
    return fmt::format("vector is {}, expected 1, 2, 4, 8 or 16", schedule.vector);
  return "";
}

} // namespace

const char* name(Skeleton skeleton) {
  return skeleton == Skeleton::Flat ? "flat" : "row";
}

std::string print(const KernelSpec& spec) {
  std::string text = fmt::format("{}\ntarget {}\nnumerics {}\nschedule {}", kFirstLine, spec.target, spec.numerics,
                                 name(spec.schedule.skeleton));
  for (const Setting& setting : kSettings)
    text += fmt::format(" {}={}", setting.key, spec.schedule.*setting.field);
  return text + "\n" + print(spec.program);
}

std::string parse(const std::string& text, KernelSpec& spec) {
  TextLines lines(text);
  KernelSpec result;
  auto failed = [&](std::string_view what) { return fmt::format("kernel spec, line {}: {}", lines.number(), what); };
  if (!lines.next() || lines.count() != 1 || lines.word(0) != kFirstLine)
    return failed(fmt::format("begins with `{}`, expected `{}`", text.substr(0, std::min<size_t>(text.find('\n'), 40)),
                              kFirstLine));
  if (!lines.next() || lines.count() != 2 || lines.word(0) != "target")
    return failed("expected `target <name>`");
  result.target = lines.word(1);
  if (!lines.next() || lines.count() != 2 || lines.word(0) != "numerics" || lines.word(1) != "traced")
    return failed("expected `numerics traced`");
  result.numerics = lines.word(1);
  bool known = lines.next() && lines.count() == 2 + std::size(kSettings) && lines.word(0) == "schedule" &&
               (lines.word(1) == "flat" || lines.word(1) == "row");
  if (!known)
    return failed("expected `schedule flat|row threads=...` and the other settings");
  result.schedule.skeleton = lines.word(1) == "flat" ? Skeleton::Flat : Skeleton::Row;
  for (size_t i = 0; i < std::size(kSettings); ++i) {
    int64_t value = 0;
    if (!lines.setting(i + 2, kSettings[i].key, value) || value > INT32_MAX)
      return failed(fmt::format("expected `{}=<number>`, given `{}`", kSettings[i].key, lines.word(i + 2)));
    result.schedule.*kSettings[i].field = static_cast<int>(value);
  }
  if (std::string reason = check(result.schedule); !reason.empty())
    return failed(reason);
  if (std::string reason = parse(std::string(lines.remainder()), result.program); !reason.empty())
    return "kernel spec: " + reason;
  spec = std::move(result);
  return "";
}

} // namespace cermet
