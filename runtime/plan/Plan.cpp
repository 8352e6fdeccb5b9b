#include "runtime/plan/Plan.h"
#include "runtime/abi/ElementType.h"
#include "runtime/plan/Views.h"
#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

namespace cermet {

using nlohmann::json;

namespace {

constexpr const char* kFormat = "cermet.plan.1";
constexpr int kMaxThreads = 1024;
constexpr int64_t kMaxSharedBytes = int64_t(1) << 20;

template <typename... Arguments> Status wrong(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  return damagedPlan(format, std::forward<Arguments>(arguments)...);
}

int64_t integer(const json& object, const char* field, int64_t low, int64_t high) {
  const json& value = object.at(field);
  // get<> of a float would truncate and of a huge unsigned wrap: both are refused by name.
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX)))
    throw json::other_error::create(501, fmt::format("'{}' is not an integer", field), &value);
  const int64_t number = value.get<int64_t>();
  if (number < low || number > high)
    throw json::other_error::create(501, fmt::format("'{}' is {}, expected {} to {}", field, number, low, high),
                                    &value);
  return number;
}

Status parseDims(const json& dims, Plan& plan, PlanValue& value) {
  if (!dims.is_array() || dims.size() > size_t(kMaxRank))
    return wrong("value '{}' needs a list of at most {} dims", value.name, kMaxRank);
  for (const json& dim : dims) {
    Dimension& dimension = value.dims[value.rank++];
    if (dim.is_number_integer()) {
      dimension.size = dim.get<int64_t>();
      if (dimension.size < 0 || dimension.size > kMaxDimension)
        return wrong("value '{}' has dimension {}", value.name, dimension.size);
      continue;
    }
    const std::string symbol = dim.get<std::string>();
    const auto known = std::find(plan.symbols.begin(), plan.symbols.end(), symbol);
    dimension = {-1, static_cast<int>(known - plan.symbols.begin())};
    if (known != plan.symbols.end())
      continue;
    // A launch learns sizes from inputs only; they come first.
    if (value.kind != ValueKind::Input)
      return wrong("value '{}' has dimension '{}', which no input has", value.name, symbol);
    if (plan.symbols.size() == size_t(kMaxSymbols))
      return wrong("more than {} symbolic dimensions", kMaxSymbols);
    plan.symbols.push_back(symbol);
  }
  return {};
}

Status parseValues(const json& values, Plan& plan) {
  if (!values.is_array() || values.size() > size_t(kMaxValues))
    return wrong("'values' is not a list of at most {}", kMaxValues);
  for (const json& item : values) {
    PlanValue value;
    value.name = item.at("name").get<std::string>();
    const std::string kind = item.at("kind").get<std::string>();
    const auto dtype = elementType(item.at("dtype").get<std::string>());
    constexpr std::string_view kinds[] = {"input", "output", "buffer", "view"};
    const auto* found = std::find(std::begin(kinds), std::end(kinds), kind);
    if (!dtype || found == std::end(kinds))
      return wrong("value '{}' has kind '{}' and dtype {}", value.name, kind, item.at("dtype").dump());
    value.dtype = *dtype;
    value.kind = static_cast<ValueKind>(found - kinds);
    if (!plan.values.empty() && value.kind < plan.values.back().kind)
      return wrong("value '{}' of kind '{}' stands after one of kind '{}'", value.name, kind,
                   kinds[static_cast<int>(plan.values.back().kind)]);
    plan.inputs += value.kind == ValueKind::Input;
    plan.outputs += value.kind == ValueKind::Output;
    CERMET_RETURN_IF_ERROR(parseDims(item.at("dims"), plan, value));
    if (value.kind == ValueKind::View)
      CERMET_RETURN_IF_ERROR(parseView(item, value, plan));
    plan.values.push_back(std::move(value));
  }
  return {};
}

// A value's dimensions but the last, aligned at the right with the step's row space; 1 repeats.
Status alignRows(const Plan& plan, const std::string& kernel, const PlanProgram& program, PlanOperand& operand) {
  const PlanValue& value = plan.values[operand.value];
  const int leading = std::max(value.rank - 1, 0);
  for (int position = 0; position < program.rowRank; ++position) {
    const int dim = leading - program.rowRank + position;
    const bool repeats = dim < 0 || (value.dims[dim] != program.rowSpace[position] && value.dims[dim].size == 1);
    if (!repeats && value.dims[dim] != program.rowSpace[position])
      return wrong("kernel '{}': the rows of '{}' are not those of its other operands", kernel, value.name);
    if (repeats && operand.output && program.rowSpace[position].size != 1)
      return wrong("kernel '{}': output '{}' would be written by several rows", kernel, value.name);
    operand.axis[position] = static_cast<int8_t>(repeats ? -1 : dim);
  }
  return {};
}

bool hasRows(const PlanOperand& operand) {
  return operand.kind == OperandKind::Tile || operand.kind == OperandKind::Row;
}

// The row space is what the leading dimensions of all tiles and rows broadcast to.
Status deriveRowSpace(const Plan& plan, const std::string& kernel, PlanProgram& program) {
  for (const PlanOperand& operand : program.operands)
    if (hasRows(operand))
      program.rowRank = std::max(program.rowRank, plan.values[operand.value].rank - 1);
  std::fill_n(program.rowSpace.begin(), program.rowRank, Dimension{1, -1});
  for (const PlanOperand& operand : program.operands) {
    if (!hasRows(operand))
      continue;
    const PlanValue& value = plan.values[operand.value];
    for (int dim = 0; dim < value.rank - 1; ++dim) {
      Dimension& extent = program.rowSpace[program.rowRank - (value.rank - 1) + dim];
      if (extent.size == 1)
        extent = value.dims[dim];
    }
  }
  for (PlanOperand& operand : program.operands) {
    if (hasRows(operand))
      CERMET_RETURN_IF_ERROR(alignRows(plan, kernel, program, operand));
    if (operand.kind == OperandKind::Index &&
        std::find(operand.axis.begin() + program.rowRank, operand.axis.end(), 0) != operand.axis.end())
      return wrong("kernel '{}' has an index along a dimension beyond its {} of rows", kernel, program.rowRank);
  }
  return {};
}

// No memory: a row's number among those of some dimensions of the row space.
Status parseIndex(const json& item, const std::string& kernel, PlanProgram& program) {
  PlanOperand operand;
  operand.value = -1;
  operand.kind = OperandKind::Index;
  if (item.at("dtype") != "i64" || item.at("output").get<bool>() || item.value("strided", false))
    return wrong("kernel '{}' has an index operand that is no i64 input", kernel);
  operand.axis.fill(-1);
  const json& dims = item.at("dims");
  if (!dims.is_array() || dims.empty())
    return wrong("kernel '{}' has an index along the dimensions {}, expected a list of some", kernel, dims.dump());
  for (const json& dim : dims) {
    if (!dim.is_number_integer() || dim.get<int64_t>() < 0 || dim.get<int64_t>() > kMaxRank - 2)
      return wrong("kernel '{}' has an index along dimension {}, expected one from 0 to {}", kernel, dim.dump(),
                   kMaxRank - 2);
    operand.axis[dim.get<int64_t>()] = 0;
  }
  program.operands.push_back(operand);
  return {};
}

Status parseOperand(const json& item, const Plan& plan, const std::string& kernel, PlanProgram& program) {
  if (item.at("kind") == name(OperandKind::Index))
    return parseIndex(item, kernel, program);
  PlanOperand operand;
  operand.value = static_cast<int>(integer(item, "value", 0, int64_t(plan.values.size()) - 1));
  operand.output = item.at("output").get<bool>();
  const PlanValue& value = plan.values[operand.value];
  const std::string kind = item.at("kind").get<std::string>();
  const std::optional<OperandKind> found = operandKind(kind);
  if (!found)
    return wrong("kernel '{}': operand '{}' has kind '{}'", kernel, value.name, kind);
  operand.kind = *found;
  if (elementType(item.at("dtype").get<std::string>()) != value.dtype)
    return wrong("kernel '{}': operand '{}' is {}, the value {}", kernel, value.name, item.at("dtype").dump(),
                 elementName(value.dtype));
  if (operand.output)
    CERMET_RETURN_IF_ERROR(checkWritten(plan, operand.value, kernel));
  const Dimension last = value.rank ? value.dims[value.rank - 1] : Dimension{1, -1};
  int64_t elements = 1;
  for (int dim = 0; dim < value.rank; ++dim)
    if (value.dims[dim].symbolic() || __builtin_mul_overflow(elements, value.dims[dim].size, &elements))
      elements = -1;
  // A kernel may read another column than its own, of more or fewer.
  const int64_t columns =
      operand.output || !item.contains("columns") ? program.columns : integer(item, "columns", 1, kMaxDimension);
  const bool fits = operand.kind == OperandKind::Tile       ? last == Dimension{columns, -1}
                    : operand.kind == OperandKind::Gathered ? value.rank == 2 && last == Dimension{program.columns, -1}
                    : operand.kind == OperandKind::List
                        ? value.rank == 1 || (value.rank == 2 && last == Dimension{program.columns, -1})
                    : operand.kind == OperandKind::Row    ? last == Dimension{1, -1}
                    : operand.kind == OperandKind::Column ? elements == columns && last.size == elements
                                                          : elements == 1;
  if (!fits)
    return wrong("kernel '{}' over {} columns: the dimensions of '{}' are not those of a {} operand", kernel,
                 program.columns, value.name, kind);
  operand.strided = item.value("strided", false);
  if (operand.strided &&
      (operand.kind == OperandKind::Row || operand.kind == OperandKind::Scalar || operand.kind == OperandKind::List))
    return wrong("kernel '{}': operand '{}' is strided and a {}, expected a tile, a column or gathered rows", kernel,
                 value.name, kind);
  if ((operand.kind == OperandKind::Gathered || operand.kind == OperandKind::List) && operand.output)
    return wrong("kernel '{}': output '{}' is {}, expected an input", kernel, value.name, kind);
  if (operand.kind == OperandKind::Gathered) {
    operand.rowsFrom = static_cast<int8_t>(integer(item, "rows", 0, kMaxOperands - 1));
    if (item.contains("from") || item.contains("to")) {
      operand.from = static_cast<int8_t>(integer(item, "from", 0, kMaxOperands - 1));
      operand.to = static_cast<int8_t>(integer(item, "to", 0, kMaxOperands - 1));
      operand.sums = static_cast<int8_t>(item.contains("sums") ? integer(item, "sums", 0, kMaxOperands - 1) : -1);
    }
  }
  operand.isTable = operand.kind == OperandKind::List && value.rank == 2;
  operand.stepDim = static_cast<int8_t>(operand.strided ? value.rank - 1 : -1);
  program.operands.push_back(operand);
  return {};
}

bool isInteger(cermet_dtype dtype) {
  return kElementTypes[dtype].format.valueClass == ValueClass::Integer;
}

// What has the numbers of a gathered operand's rows may stand behind it.
Status checkGathered(const Plan& plan, const std::string& kernel, const PlanProgram& program) {
  for (const PlanOperand& operand : program.operands) {
    if (operand.kind != OperandKind::Gathered)
      continue;
    const std::string& name = plan.values[operand.value].name;
    const auto has = [&](int index, OperandKind kind, int rank) {
      return index < static_cast<int>(program.operands.size()) && program.operands[index].kind == kind &&
             !program.operands[index].output && (rank == 0 || plan.values[program.operands[index].value].rank == rank);
    };
    const auto isIntegers = [&](int index, OperandKind kind) {
      return has(index, kind, kind == OperandKind::List ? 1 : 0) &&
             isInteger(plan.values[program.operands[index].value].dtype);
    };
    const bool isSum = operand.from >= 0;
    if (!isIntegers(operand.rowsFrom, isSum ? OperandKind::List : OperandKind::Row))
      return wrong("kernel '{}': the rows of '{}' are those of operand {}, expected a {} input of integers", kernel,
                   name, operand.rowsFrom, isSum ? "list" : "row");
    if (isSum && kElementTypes[plan.values[operand.value].dtype].format.valueClass != ValueClass::Real)
      return wrong("kernel '{}': the rows of '{}' are added, expected reals", kernel, name);
    if (isSum && (!isIntegers(operand.from, OperandKind::Row) || !isIntegers(operand.to, OperandKind::Row)))
      return wrong("kernel '{}': the rows of '{}' are from operand {} to {}, expected row inputs of integers", kernel,
                   name, operand.from, operand.to);
    if (operand.sums >= 0 && !(has(operand.sums, OperandKind::List, 2) &&
                               plan.values[program.operands[operand.sums].value].dtype == CERMET_F32))
      return wrong("kernel '{}': the sums of the rows of '{}' are operand {}, expected a list of f32", kernel, name,
                   operand.sums);
  }
  return {};
}

// Rows are walked as the first tile that is written lies in memory, or else the first that is read.
void findLeading(PlanProgram& program) {
  int walking = 0, read = -1;
  for (const PlanOperand& operand : program.operands) {
    if (operand.kind == OperandKind::Tile && operand.output && program.leading < 0)
      program.leading = walking;
    if (operand.kind == OperandKind::Tile && !operand.output && read < 0)
      read = walking;
    walking += operand.walksRows();
  }
  if (program.leading < 0)
    program.leading = read;
}

Status parseProgram(const json& item, const Plan& plan, const std::string& kernel, PlanProgram& program) {
  const std::string skeleton = item.at("skeleton").get<std::string>();
  const auto known = std::ranges::find(kSkeletons, skeleton);
  if (known == std::end(kSkeletons))
    return wrong("kernel '{}' has skeleton '{}'", kernel, skeleton);
  program.skeleton = Skeleton(known - std::begin(kSkeletons));
  program.columns = integer(item, "columns", 1, kMaxDimension);
  program.rowsPerBlock = static_cast<int>(integer(item, "rows_per_block", 1, kMaxThreads));
  program.vector = static_cast<int>(integer(item, "vector", 1, 64));
  program.blocksPerSm = static_cast<int>(integer(item, "blocks_per_sm", 0, 64));
  program.accumulators = static_cast<int>(integer(item, "accumulators", 0, kMaxOperands));
  if (!std::has_single_bit(unsigned(program.vector)))
    return wrong("kernel '{}': 'vector' is {}, expected a power of two", kernel, program.vector);
  const json& operands = item.at("operands");
  if (!operands.is_array() || operands.empty() || operands.size() > size_t(kMaxOperands))
    return wrong("kernel '{}' has {} operands, expected 1 to {}", kernel, operands.size(), kMaxOperands);
  int columnOutputs = 0;
  for (const json& operand : operands) {
    CERMET_RETURN_IF_ERROR(parseOperand(operand, plan, kernel, program));
    const PlanOperand& parsed = program.operands.back();
    columnOutputs += parsed.output && !parsed.walksRows();
  }
  if (program.skeleton == Skeleton::Column ? program.accumulators != 0 : columnOutputs != program.accumulators)
    return wrong("kernel '{}' has {} accumulators and {} column outputs", kernel, program.accumulators, columnOutputs);
  CERMET_RETURN_IF_ERROR(checkGathered(plan, kernel, program));
  findLeading(program);
  return deriveRowSpace(plan, kernel, program);
}

// One program, whose fields are the step's own, or a list of several.
Status parseKernel(const json& item, const Plan& plan, PlanStep& step) {
  step.name = item.at("name").get<std::string>();
  step.spec = item.at("spec").get<std::string>();
  step.threads = static_cast<int>(integer(item, "threads", 1, kMaxThreads));
  step.sharedBytes = static_cast<int>(integer(item, "shared_bytes", 0, kMaxSharedBytes));
  const json& entries = item.at("entries");
  step.vectorEntry = entries.at("vector").get<std::string>();
  step.scalarEntry = entries.at("scalar").get<std::string>();
  step.foldEntry = entries.at("fold").get<std::string>();
  if (!item.contains("programs")) {
    CERMET_RETURN_IF_ERROR(parseProgram(item, plan, step.name, step.programs.emplace_back()));
  } else {
    const json& programs = item["programs"];
    if (!programs.is_array() || programs.size() < 2 || programs.size() > size_t(kMaxPrograms))
      return wrong("kernel '{}' has {} programs, expected 2 to {}", step.name, programs.size(), kMaxPrograms);
    size_t bytes = 0;
    for (const json& program : programs) {
      CERMET_RETURN_IF_ERROR(parseProgram(program, plan, step.name, step.programs.emplace_back()));
      const PlanProgram &first = step.programs.front(), &last = step.programs.back();
      if ((bytes += argumentBytes(last.operands.size())) > kMaxArgumentBytes)
        return wrong("kernel '{}' has an argument of more than {} bytes", step.name, kMaxArgumentBytes);
      const bool sums = last.accumulators > 0;
      if (sums != (first.accumulators > 0) || sums != (last.blocksPerSm > 0) || last.blocksPerSm != first.blocksPerSm)
        return wrong("kernel '{}' has several programs, of which one is persistent or sums over rows as others do not",
                     step.name);
    }
  }
  if (step.vectorEntry.empty() || step.scalarEntry.empty() ||
      step.foldEntry.empty() != (step.programs[0].accumulators == 0))
    return wrong("kernel '{}' lacks an entry's name", step.name);
  return {};
}

Status parseExternal(const json& item, const Plan& plan, PlanStep& step) {
  step.kind = StepKind::External;
  step.name = item.at("op").get<std::string>();
  // An importer's own name for what it does not know says more than that it is opaque.
  if (const json target = item.value("/attributes/target"_json_pointer, json()); target.is_string())
    step.name = target.get<std::string>();
  const std::pair<const char*, std::vector<int>*> lists[] = {{"operands", &step.externalOperands},
                                                             {"results", &step.externalResults}};
  for (auto [field, list] : lists) {
    const json& values = item.at(field);
    if (!values.is_array() || values.size() > size_t(kMaxValues))
      return wrong("external '{}': '{}' is no list of values", step.name, field);
    for (const json& value : values) {
      if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() >= int64_t(plan.values.size()))
        return wrong("external '{}': {} is no value", step.name, value.dump());
      list->push_back(value.get<int>());
    }
  }
  for (int result : step.externalResults)
    CERMET_RETURN_IF_ERROR(checkWritten(plan, result, step.name));
  return {};
}

Status parseFields(const json& text, Plan& plan) {
  const std::string format = text.at("format").get<std::string>();
  if (format != kFormat)
    return wrong("its format is '{}', expected '{}'", format, kFormat);
  plan.name = text.at("name").get<std::string>();
  plan.target = text.at("target").get<std::string>();
  CERMET_RETURN_IF_ERROR(parseValues(text.at("values"), plan));
  const json& steps = text.at("steps");
  if (!steps.is_array())
    return wrong("'steps' is not a list");
  for (const json& item : steps) {
    PlanStep step;
    const std::string kind = item.at("kind").get<std::string>();
    if (kind == "kernel")
      CERMET_RETURN_IF_ERROR(parseKernel(item, plan, step));
    else if (kind == "external")
      CERMET_RETURN_IF_ERROR(parseExternal(item, plan, step));
    else
      return wrong("a step has kind '{}'", kind);
    plan.steps.push_back(std::move(step));
  }
  return {};
}

} // namespace

Result<Plan> parsePlan(std::string text) {
  Plan plan;
  try {
    const json parsed = json::parse(text, nullptr, false);
    if (!parsed.is_object())
      return wrong("it is not a JSON object");
    CERMET_RETURN_IF_ERROR(parseFields(parsed, plan));
  } catch (const json::exception& failure) {
    return wrong("{}", failure.what());
  }
  plan.json = std::move(text);
  return plan;
}

std::vector<std::string> Plan::specs() const {
  std::vector<std::string> specs;
  for (const PlanStep& step : steps)
    if (step.kind == StepKind::Kernel)
      specs.push_back(step.spec);
  return specs;
}

} // namespace cermet
