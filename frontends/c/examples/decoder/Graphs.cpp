#include "Graphs.h"
#include <cstdio>

namespace {

std::string precise(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17e", value);
  return text;
}

// A text whose ${names} stand for a model's sizes: types first, then the function's arguments, results and body.
Graph make(const std::string& name, const Sizes& sizes, const std::string& types, const std::string& function) {
  const Config& config = sizes.config;
  const std::pair<std::string, std::string> names[] = {{"${hidden}", std::to_string(config.hidden)},
                                                       {"${heads}", std::to_string(config.heads)},
                                                       {"${key_heads}", std::to_string(config.keyHeads)},
                                                       {"${size}", std::to_string(config.headSize)},
                                                       {"${half}", std::to_string(config.headSize / 2)},
                                                       {"${inner}", std::to_string(config.intermediate)},
                                                       {"${words}", std::to_string(config.vocabulary)},
                                                       {"${keys}", std::to_string(sizes.keys)},
                                                       {"${eps}", precise(config.eps)},
                                                       {"${tokens}", "#cermet.symbols<[\"tokens\"]>"},
                                                       {"${T}", sizes.dtype}};
  std::string text = types + "module attributes {cermet.version = 1 : i64, cermet.no_gradient} {\n  func.func @" +
                     name + function + "}\n";
  for (const auto& [placeholder, value] : names)
    for (size_t at; (at = text.find(placeholder)) != std::string::npos;)
      text.replace(at, placeholder.size(), value);
  return {name, text};
}

} // namespace

// A row of the table for each token, and the first norm.
Graph embedGraph(const Sizes& sizes) {
  return make("embed", sizes, R"(!ids = tensor<?xi64, ${tokens}>
!rows = tensor<?x${hidden}x${T}, ${tokens}>
!table = tensor<${words}x${hidden}x${T}>
!weight = tensor<${hidden}x${T}>
)",
              R"((%ids: !ids, %table: !table, %weight: !weight) -> (!rows, !rows) {
    %hidden = cermet.gather %table, %ids : !table, !ids to !rows
    %normed = cermet.rms_norm %hidden, %weight {eps = ${eps} : f64, round_before_weight} : !rows, !weight to !rows
    return %normed, %hidden : !rows, !rows
  }
)");
}

// Each half of a head turned against the other, of queries and keys at once; with a norm of each head before it, or
// without.
Graph rotateGraph(const Sizes& sizes) {
  const auto turn = [&](const std::string& x, const std::string& norm) {
    std::string text = R"(    %XN = cermet.rms_norm %X, %N {eps = ${eps} : f64, round_before_weight} : !X, !weight to !X
    %Xcos = cermet.broadcast %c : !one to !X
    %Xsin = cermet.broadcast %s : !one to !X
    %Xlow = cermet.slice %XN [0, 0, 0] : !X to !Xhalf
    %Xhigh = cermet.slice %XN [0, 0, ${half}] : !X to !Xhalf
    %Xminus = cermet.neg %Xhigh : !Xhalf
    %Xhalves = cermet.concat %Xminus, %Xlow {dim = 2 : i64} : !Xhalf, !Xhalf to !X
    %Xplain = cermet.mul %XN, %Xcos : !X
    %Xturned = cermet.mul %Xhalves, %Xsin : !X
    %Xresult = cermet.add %Xplain, %Xturned : !X
)";
    if (!sizes.normed)
      text.erase(0, text.find('\n') + 1);
    const std::pair<std::string, std::string> names[] = {
        {"%XN", sizes.normed ? "%" + x + "normed" : "%" + x}, {"%N", "%" + norm}, {"%X", "%" + x}, {"!X", "!" + x}};
    for (const auto& [placeholder, value] : names)
      for (size_t at; (at = text.find(placeholder)) != std::string::npos;)
        text.replace(at, placeholder.size(), value);
    return text;
  };
  return make("rotate", sizes, R"(!q = tensor<?x${heads}x${size}x${T}, ${tokens}>
!qhalf = tensor<?x${heads}x${half}x${T}, ${tokens}>
!k = tensor<?x${key_heads}x${size}x${T}, ${tokens}>
!khalf = tensor<?x${key_heads}x${half}x${T}, ${tokens}>
!table = tensor<?x${size}xf32, ${tokens}>
!angle = tensor<?x${size}x${T}, ${tokens}>
!one = tensor<?x1x${size}x${T}, ${tokens}>
!weight = tensor<${size}x${T}>
)",
              std::string("(%q: !q, %k: !k, %cos: !table, %sin: !table") +
                  (sizes.normed ? ", %q_weight: !weight, %k_weight: !weight" : "") + R"() -> (!q, !k) {
    %cr = cermet.cast %cos : !table to !angle
    %sr = cermet.cast %sin : !table to !angle
    %c = cermet.reshape %cr : !angle to !one
    %s = cermet.reshape %sr : !angle to !one
)" + turn("q", "q_weight") +
                  turn("k", "k_weight") + R"(    return %qresult, %kresult : !q, !k
  }
)");
}

// What each token sees: the keys up to its own position, of all that the cache has room for.
Graph attendGraph(const Sizes& sizes) {
  return make("attend", sizes, R"(!x = tensor<${heads}x?x${keys}xf32, ${tokens}>
!y = tensor<${heads}x?x${keys}x${T}, ${tokens}>
!number = tensor<${heads}x?x${keys}xi64, ${tokens}>
!seen = tensor<${heads}x?x${keys}xi1, ${tokens}>
!row = tensor<${heads}x?x1xf32, ${tokens}>
!positions = tensor<?xi64, ${tokens}>
!column = tensor<?x1xi64, ${tokens}>
)",
              R"((%scores: !x, %positions: !positions) -> !y {
    %key = cermet.iota 2 : !number
    %own = cermet.reshape %positions : !positions to !column
    %last = cermet.broadcast %own : !column to !number
    %seen = cermet.compare "le", %key, %last : !number to !seen
    %never = cermet.constant 0xFF800000 : !x
    %x = cermet.select %seen, %scores, %never : !seen, !x
    %largest = cermet.reduce_max %x : !x to !row
    %most = cermet.broadcast %largest : !row to !x
    %below = cermet.sub %x, %most : !x
    %power = cermet.exp %below : !x
    %sum = cermet.reduce_sum %power : !x to !row
    %all = cermet.broadcast %sum : !row to !x
    %weights = cermet.div %power, %all : !x
    %y = cermet.cast %weights : !x to !y
    return %y : !y
  }
)");
}

Graph addNormGraph(const Sizes& sizes) {
  return make("add_norm", sizes, R"(!rows = tensor<?x${hidden}x${T}, ${tokens}>
!weight = tensor<${hidden}x${T}>
)",
              R"((%x: !rows, %residual: !rows, %weight: !weight) -> (!rows, !rows) {
    %normed, %sum = cermet.add_rms_norm %x, %residual, %weight {eps = ${eps} : f64, round_before_weight}
        : !rows, !rows, !weight to !rows, !rows
    return %normed, %sum : !rows, !rows
  }
)");
}

Graph gateGraph(const Sizes& sizes) {
  return make("gate", sizes, "!rows = tensor<?x${inner}x${T}, ${tokens}>\n",
              R"((%gate: !rows, %up: !rows) -> !rows {
    %y = cermet.glu %gate, %up : !rows
    return %y : !rows
  }
)");
}

// The token with the largest logit + temperature * noise, the first of equal ones, and what softmax gives it. With
// Gumbel's noise, -log(-log(u)), that draws from softmax(logits / temperature) without a sum over words; at 0 it is
// greedy.
Graph chooseGraph(const Sizes& sizes) {
  return make("choose", sizes, R"(!logits = tensor<?x${words}x${T}, ${tokens}>
!f = tensor<?x${words}xf32, ${tokens}>
!whole = tensor<?x${words}xi64, ${tokens}>
!is = tensor<?x${words}xi1, ${tokens}>
!one = tensor<?x1xf32, ${tokens}>
!id = tensor<?x1xi64, ${tokens}>
)",
              R"((%logits: !logits, %temperature: tensor<f32>, %seed: tensor<i64>) -> (!id, !one) {
    %x = cermet.cast %logits : !logits to !f
    %drawn = cermet.random %seed : tensor<i64> to !whole
    %real = cermet.cast %drawn : !whole to !f
    %unit = cermet.constant 2.3283064365386963e-10 : !f
    %share = cermet.mul %real, %unit : !f
    %least = cermet.constant 1.1641532182693481e-10 : !f
    %most = cermet.constant 0.99999994 : !f
    %above = cermet.max %share, %least : !f
    %u = cermet.min %above, %most : !f
    %log = cermet.log %u : !f
    %minus = cermet.neg %log : !f
    %again = cermet.log %minus : !f
    %factor = cermet.broadcast %temperature : tensor<f32> to !f
    %noise = cermet.mul %again, %factor : !f
    %score = cermet.sub %x, %noise : !f
    %top = cermet.reduce_max %score : !f to !one
    %tops = cermet.broadcast %top : !one to !f
    %is = cermet.compare "eq", %score, %tops : !f to !is
    %column = cermet.iota 1 : !f
    %none = cermet.constant ${words}.0 : !f
    %candidate = cermet.select %is, %column, %none : !is, !f
    %first = cermet.reduce_min %candidate : !f to !one
    %id = cermet.cast %first : !one to !id
    %own = cermet.pick %x, %id : !f, !id to !one
    %largest = cermet.reduce_max %x : !f to !one
    %all = cermet.broadcast %largest : !one to !f
    %below = cermet.sub %x, %all : !f
    %power = cermet.exp %below : !f
    %sum = cermet.reduce_sum %power : !f to !one
    %gap = cermet.sub %own, %largest : !one
    %part = cermet.exp %gap : !one
    %probability = cermet.div %part, %sum : !one
    return %id, %probability : !id, !one
  }
)");
}

Graph convertGraph(const std::string& from, const std::string& to) {
  return {"convert", "!from = tensor<?x" + from + ", #cermet.symbols<[\"elements\"]>>\n!to = tensor<?x" + to +
                         R"(, #cermet.symbols<["elements"]>>
module attributes {cermet.version = 1 : i64, cermet.no_gradient} {
  func.func @convert(%x: !from) -> !to {
    %y = cermet.cast %x : !from to !to
    return %y : !to
  }
}
)"};
}
