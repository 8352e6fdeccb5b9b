#include "ir/text/Text.h"
#include "ir/text/ErrorText.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Scan.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;

namespace cermet::ir {

static constexpr StringLiteral bufferName = "graph";

void registerDialects(MLIRContext& context) {
  context.disableMultithreading();
  context.printOpOnDiagnostic(false);
  context.loadDialect<CermetDialect, func::FuncDialect>();
}

//===--- Locations ---------------------------------------------------------------------------------------------------//

StringRef nodeName(Location location) {
  StringRef name;
  location->walk([&](Location part) {
    auto named = dyn_cast<NameLoc>(part);
    if (!named)
      return WalkResult::advance();
    name = named.getName();
    return WalkResult::interrupt();
  });
  return name;
}

unsigned textLine(Location location) {
  unsigned line = 0;
  location->walk([&](Location part) {
    auto place = dyn_cast<FileLineColLoc>(part);
    if (!place || place.getFilename() != bufferName)
      return WalkResult::advance();
    line = place.getLine();
    return WalkResult::interrupt();
  });
  return line;
}

std::string argumentName(func::FuncOp function, unsigned index) {
  StringRef name = nodeName(function.getArgument(index).getLoc());
  return name.empty() ? "arg" + std::to_string(index) : name.str();
}

// Gives what the text names its place in the text: the location of a node is its name, then where it stands.
static void placeNames(ModuleOp module, const llvm::SourceMgr& sources, const AsmParserState& state) {
  MLIRContext* context = module.getContext();
  auto place = [&](llvm::SMLoc location) -> Location {
    auto [line, column] = sources.getLineAndColumn(location, sources.getMainFileID());
    return FileLineColLoc::get(context, bufferName, line, column);
  };
  module.walk([&](Operation* op) {
    StringRef name = nodeName(op->getLoc());
    const AsmParserState::OperationDefinition* definition = state.getOpDef(op);
    if (!name.empty() && definition)
      op->setLoc(NameLoc::get(StringAttr::get(context, name), place(definition->loc.Start)));
    for (Region& region : op->getRegions())
      for (Block& block : region) {
        const AsmParserState::BlockDefinition* blockDefinition = state.getBlockDef(&block);
        for (BlockArgument argument : block.getArguments()) {
          if (!blockDefinition || argument.getArgNumber() >= blockDefinition->arguments.size())
            continue;
          llvm::SMRange range = blockDefinition->arguments[argument.getArgNumber()].loc;
          if (!range.isValid())
            continue;
          StringRef given = nodeName(argument.getLoc());
          StringRef written(range.Start.getPointer(), range.End.getPointer() - range.Start.getPointer());
          written.consume_front("%");
          argument.setLoc(NameLoc::get(StringAttr::get(context, given.empty() ? written : given), place(range.Start)));
        }
      }
  });
}

//===--- Parsing -----------------------------------------------------------------------------------------------------//

OwningOpRef<ModuleOp> parseGraph(StringRef text, MLIRContext& context, std::string& error) {
  error = scanText(text);
  if (!error.empty())
    return nullptr;

  ErrorText errors(context, error);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text, bufferName), llvm::SMLoc());
  ParserConfig config(&context, /*verifyAfterParse=*/false);
  AsmParserState state;
  Block block;
  OwningOpRef<ModuleOp> module;
  if (succeeded(parseAsmSourceFile(sources, &block, config, &state))) {
    if (llvm::hasSingleElement(block) && isa<ModuleOp>(block.front())) {
      module = cast<ModuleOp>(block.front());
      module->getOperation()->remove();
      placeNames(*module, sources, state);
      if (failed(verify(*module)) || failed(verifyGraph(*module)))
        module = nullptr;
    } else {
      error = "graph:1:1: expected one `module attributes {cermet.version = 1 : i64} { ... }` and nothing beside it";
    }
  }
  if (!module && error.empty())
    error = "graph:1:1: not a graph";
  return module;
}

//===--- Printing ----------------------------------------------------------------------------------------------------//

// The printer gives every operation a location; one without a name says nothing. String literals stay as they are.
static std::string withoutUnknown(StringRef text) {
  constexpr StringLiteral unknown = " loc(unknown)";
  std::string result;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!inString && text.substr(i).starts_with(unknown)) {
      i += unknown.size() - 1;
      continue;
    }
    result += text[i];
    if (inString && text[i] == '\\' && i + 1 < text.size())
      result += text[++i];
    else if (text[i] == '"')
      inString = !inString;
  }
  return result;
}

std::string printGraph(ModuleOp graph, bool withLocations) {
  OwningOpRef<ModuleOp> copy = graph.clone();
  MLIRContext* context = graph.getContext();
  // As an SSA value's name it must be a word that is read back, where each byte may take three characters.
  const size_t longest = withLocations ? StringRef::npos : maximumWordSize / 4;
  auto named = [&](Location location) -> Location {
    StringRef name = nodeName(location).take_front(longest);
    if (name.empty())
      return UnknownLoc::get(context);
    return NameLoc::get(StringAttr::get(context, name));
  };
  copy->walk([&](Operation* op) {
    op->setLoc(withLocations ? named(op->getLoc()) : UnknownLoc::get(context));
    for (Region& region : op->getRegions())
      for (Block& block : region)
        for (BlockArgument argument : block.getArguments())
          argument.setLoc(named(argument.getLoc()));
  });
  std::string text;
  llvm::raw_string_ostream stream(text);
  OpPrintingFlags flags;
  flags.useLocalScope().printNameLocAsPrefix(!withLocations).enableDebugInfo(withLocations, false);
  copy->print(stream, flags);
  if (withLocations)
    text = withoutUnknown(text);
  if (text.empty() || text.back() != '\n')
    text += '\n';
  return text;
}

func::FuncOp graphFunction(ModuleOp graph) {
  return *graph.getOps<func::FuncOp>().begin();
}

OwningOpRef<ModuleOp> createGraph(MLIRContext& context) {
  OwningOpRef<ModuleOp> graph = ModuleOp::create(UnknownLoc::get(&context));
  (*graph)->setAttr("cermet.version", IntegerAttr::get(IntegerType::get(&context, 64), 1));
  return graph;
}

} // namespace cermet::ir
