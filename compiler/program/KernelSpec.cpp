#include "compiler/program/KernelSpec.h"
#include "compiler/program/TextLines.h"
#include "runtime/abi/RowArguments.h"
#include <algorithm>
#include <fmt/format.h>

namespace cermet {
namespace {

constexpr const char* kFirstLine = "cermet.kernel.1";
constexpr const char* kSchedule = "schedule ";

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
  if (schedule.threadsPerRow < 1 || schedule.threads % schedule.threadsPerRow != 0)
    return fmt::format("threads_per_row is {}, expected a divisor of threads ({})", schedule.threadsPerRow,
                       schedule.threads);
  if (schedule.vector < 1 || schedule.vector > 16 || (schedule.vector & (schedule.vector - 1)) != 0)
    return fmt::format("vector is {}, expected 1, 2, 4, 8 or 16", schedule.vector);
  return "";
}

// Of programs that are each right.
std::string checkBeside(const std::vector<ScheduledProgram>& programs) {
  if (programs.size() > size_t(kMaxPrograms))
    return fmt::format("{} programs side by side, expected at most {}", programs.size(), kMaxPrograms);
  size_t bytes = 0;
  for (const ScheduledProgram& each : programs)
    bytes += argumentBytes(each.program.operands.size());
  if (bytes > kMaxArgumentBytes)
    return fmt::format("programs whose arguments have {} bytes, expected at most {}", bytes, kMaxArgumentBytes);
  for (const ScheduledProgram& each : programs) {
    if (each.schedule.threads != programs[0].schedule.threads)
      return fmt::format("threads are {} beside {}, expected equal ones", each.schedule.threads,
                         programs[0].schedule.threads);
    if (programs.size() > 1 && !mayStandBeside(each, programs[0]))
      return fmt::format("program {} is persistent or sums over rows, expected to be alone or beside such as are both",
                         each.program.name);
  }
  return "";
}

// One schedule and the program that follows it; `before`: the lines above.
std::string parse(std::string_view text, int before, ScheduledProgram& result) {
  TextLines lines(text);
  auto failed = [&](std::string_view what) {
    return fmt::format("kernel spec, line {}: {}", before + lines.number(), what);
  };
  const bool begins = lines.next() && lines.count() == 2 + std::size(kSettings) && lines.word(0) == "schedule";
  const auto skeleton = begins ? std::ranges::find(kSkeletons, lines.word(1)) : std::end(kSkeletons);
  if (skeleton == std::end(kSkeletons))
    return failed("expected `schedule flat|row|column|turned threads=...` and the other settings");
  result.schedule.skeleton = Skeleton(skeleton - std::begin(kSkeletons));
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
  if (result.schedule.skeleton == Skeleton::Column && (result.program.reduces() || !result.program.accumulates()))
    return fmt::format("kernel spec: program {} is scheduled by columns, expected sums over rows and no reductions",
                       result.program.name);
  const int perRow = result.schedule.threadsPerRow, threads = result.schedule.threads;
  const auto isPowerOfTwo = [](int number) { return number > 0 && (number & (number - 1)) == 0; };
  if (result.schedule.skeleton == Skeleton::Turned &&
      (result.program.reduces() || result.program.accumulates() || !isPowerOfTwo(threads) || !isPowerOfTwo(perRow) ||
       threads / perRow < std::max(perRow, result.schedule.vector)))
    return fmt::format("kernel spec: program {} is scheduled by turned tiles, expected elementwise work and powers of "
                       "two of threads, of a row no more than there are rows",
                       result.program.name);
  if (result.program.reduces() && perRow != result.schedule.threads && (perRow & (perRow - 1)) != 0)
    return fmt::format("kernel spec: threads_per_row is {} of a program that reduces, expected a power of two or "
                       "threads ({}) itself",
                       perRow, result.schedule.threads);
  return "";
}

} // namespace

const char* name(Skeleton skeleton) {
  return kSkeletons[int(skeleton)].data();
}

bool mayStandBeside(const ScheduledProgram& each, const ScheduledProgram& first) {
  return each.schedule.threads == first.schedule.threads && each.schedule.blocksPerSm == first.schedule.blocksPerSm &&
         each.program.accumulates() == first.program.accumulates() &&
         each.program.accumulates() == (each.schedule.blocksPerSm > 0);
}

// Equal names stand once.
std::string KernelSpec::name() const {
  std::string result = programs[0].program.name;
  for (size_t i = 1; i < programs.size(); ++i)
    if (programs[i].program.name != programs[i - 1].program.name)
      result += "_and_" + programs[i].program.name;
  return result;
}

int KernelSpec::sharedBytes() const {
  int most = 0;
  for (const ScheduledProgram& each : programs)
    most = std::max(most, each.schedule.sharedBytes);
  return most;
}

std::string print(const KernelSpec& spec) {
  std::string text = fmt::format("{}\ntarget {}\nnumerics {}\n", kFirstLine, spec.target, spec.numerics);
  for (const ScheduledProgram& each : spec.programs) {
    text += fmt::format("{}{}", kSchedule, name(each.schedule.skeleton));
    for (const Setting& setting : kSettings)
      text += fmt::format(" {}={}", setting.key, each.schedule.*setting.field);
    text += "\n" + print(each.program);
  }
  return text;
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
  std::string_view rest = lines.remainder();
  int before = lines.number();
  do {
    // A program ends where the next one's schedule begins.
    size_t end = rest.find(std::string("\n") + kSchedule);
    std::string_view part = rest.substr(0, end == std::string_view::npos ? end : end + 1);
    if (std::string reason = parse(part, before, result.programs.emplace_back()); !reason.empty())
      return reason;
    before += static_cast<int>(std::ranges::count(part, '\n'));
    rest.remove_prefix(part.size());
  } while (!rest.empty());
  if (std::string reason = checkBeside(result.programs); !reason.empty())
    return "kernel spec: " + reason;
  spec = std::move(result);
  return "";
}

} // namespace cermet
