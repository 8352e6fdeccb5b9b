// Launches that are captured into a CUDA graph, in a program of the CUDA runtime:
//
//     captured_graph [ROWS]
//
// A chain of layers, each a residual add with the RMSNorm behind it, runs on a stream, first by one launch after the
// other, then as a graph that is captured once and replayed with other inputs. What comes out is compared with values
// computed here, and both ways are timed. Everything that a capture forbids is done before it: kernels are compiled and
// loaded (prepare), and memory is there, the workspace's too. A graph keeps the addresses and sizes that it was
// captured with, so other inputs are copied to the same place, and another number of rows is another capture of the
// same kernels.
//
// Build: c++ -std=c++17 captured_graph.cpp -lcermet -lcudart
#include <cermet.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kColumns = 1024, kLayers = 16, kReplays = 3, kTimed = 200;
constexpr double kEpsilon = 1e-5, kTolerance = 1e-5;

const char* const kGraph = R"(module attributes {cermet.version = 1 : i64} {
  func.func @add_rms_norm(%x: tensor<?x1024xf32, #cermet.symbols<["rows"]>>,
                          %residual: tensor<?x1024xf32, #cermet.symbols<["rows"]>>, %weight: tensor<1024xf32>)
      -> (tensor<?x1024xf32, #cermet.symbols<["rows"]>>, tensor<?x1024xf32, #cermet.symbols<["rows"]>>) {
    %y, %sum = cermet.add_rms_norm %x, %residual, %weight {eps = 1.0e-5 : f64}
        : tensor<?x1024xf32, #cermet.symbols<["rows"]>>, tensor<?x1024xf32, #cermet.symbols<["rows"]>>,
          tensor<1024xf32> to
          tensor<?x1024xf32, #cermet.symbols<["rows"]>>, tensor<?x1024xf32, #cermet.symbols<["rows"]>>
    return %y, %sum : tensor<?x1024xf32, #cermet.symbols<["rows"]>>,
                      tensor<?x1024xf32, #cermet.symbols<["rows"]>>
  }
}
)";

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

class Stream {
public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

private:
  cudaStream_t stream_ = nullptr;
};

// Memory of the device; cudaMalloc aligns it as a workspace must be.
class Memory {
public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    if (bytes > 0)
      check(cudaMalloc(&data_, bytes), "cudaMalloc");
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void fill(const std::vector<float>& from, cudaStream_t stream) const {
    check(cudaMemcpyAsync(data_, from.data(), bytes_, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  }

private:
  void* data_ = nullptr;
  size_t bytes_;
};

// What a stream is given while it is captured, to be given again as often as one likes. The kernels belong to the
// executables, which must outlive it.
class Graph {
public:
  template <typename Work> Graph(cudaStream_t stream, const Work& work) {
    // Only what this thread does may end the capture; other threads may allocate meanwhile.
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    try {
      work();
    } catch (...) {
      cudaGraph_t given_up = nullptr;
      cudaStreamEndCapture(stream, &given_up);
      cudaGraphDestroy(given_up);
      throw;
    }
    cudaGraph_t captured = nullptr;
    check(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
    const cudaError_t made = cudaGraphInstantiateWithFlags(&graph_, captured, 0);
    cudaGraphDestroy(captured);
    check(made, "cudaGraphInstantiateWithFlags");
  }
  ~Graph() { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void replay(cudaStream_t stream) const { check(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch"); }

private:
  cudaGraphExec_t graph_ = nullptr;
};

// Microseconds of the device for each time that `work` is queued, after one that warms it up.
template <typename Work> double microseconds(const Stream& stream, const Work& work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  work();
  check(cudaEventRecord(begin, stream), "cudaEventRecord");
  for (int turn = 0; turn < kTimed; ++turn)
    work();
  check(cudaEventRecord(end, stream), "cudaEventRecord");
  stream.wait();
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return milliseconds * 1e3 / kTimed;
}

// Layer by layer: the sum of both, and its norm by the weight.
void computeHere(std::vector<double>& x, std::vector<double>& residual, const std::vector<float>& weight) {
  for (int layer = 0; layer < kLayers; ++layer)
    for (size_t row = 0; row < x.size() / kColumns; ++row) {
      double squares = 0;
      for (size_t at = row * kColumns; at < (row + 1) * kColumns; ++at) {
        residual[at] += x[at];
        squares += residual[at] * residual[at];
      }
      for (size_t at = row * kColumns; at < (row + 1) * kColumns; ++at)
        x[at] = residual[at] / std::sqrt(squares / kColumns + kEpsilon) * weight[at % kColumns];
    }
}

int run(int64_t rows) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaFree(nullptr), "cudaFree"); // makes the device's primary context, which Cermet launches in
  const Stream stream;

  const cermet::Context context;
  const cermet::Executable layer = context.prepare(context.compile(kGraph), device); // before any capture

  // Two sets, which the layers write in turn: no launch writes what it reads.
  const size_t count = static_cast<size_t>(rows) * kColumns;
  const Memory first[2] = {Memory(count * 4), Memory(count * 4)}, second[2] = {Memory(count * 4), Memory(count * 4)};
  const Memory scale(kColumns * 4);
  const auto tensors = [&](const Memory* from, const Memory* to) {
    return std::vector<cermet::Tensor>{{from[0].data(), CERMET_F32, {rows, kColumns}},
                                       {from[1].data(), CERMET_F32, {rows, kColumns}},
                                       {scale.data(), CERMET_F32, {kColumns}},
                                       {to[0].data(), CERMET_F32, {rows, kColumns}},
                                       {to[1].data(), CERMET_F32, {rows, kColumns}}};
  };
  const std::vector<cermet::Tensor> there = tensors(first, second), back = tensors(second, first);
  const Memory workspace(layer.workspaceSize(there));
  const auto launches = [&] {
    for (int index = 0; index < kLayers; ++index)
      layer.launch(stream, index % 2 == 0 ? there : back, {workspace.data(), workspace.bytes()});
  };
  static_assert(kLayers % 2 == 0, "the last layer writes the first set");

  std::vector<float> weight(kColumns);
  for (size_t column = 0; column < kColumns; ++column)
    weight[column] = 1 + 0.001F * static_cast<float>(column % 7);
  scale.fill(weight, stream);

  const Graph graph(stream, launches);
  const uint64_t launched = context.counters().launches;
  double worst = 0;
  size_t wrong = 0;                             // also what is no number
  for (int turn = 0; turn < kReplays; ++turn) { // each with inputs of its own
    std::vector<float> x(count), residual(count), y(count);
    for (size_t at = 0; at < count; ++at) {
      x[at] = std::sin(0.37F * static_cast<float>(at + 1) + static_cast<float>(turn));
      residual[at] = std::cos(0.11F * static_cast<float>(at) - static_cast<float>(turn));
    }
    first[0].fill(x, stream);
    first[1].fill(residual, stream);
    graph.replay(stream);
    check(cudaMemcpyAsync(y.data(), first[0].data(), count * 4, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    stream.wait();
    std::vector<double> expected(x.begin(), x.end()), sums(residual.begin(), residual.end());
    computeHere(expected, sums, weight);
    for (size_t at = 0; at < count; ++at) {
      const double error = std::fabs(y[at] - expected[at]) / std::fmax(1, std::fabs(expected[at]));
      worst = std::fmax(worst, error);
      wrong += !(error < kTolerance);
    }
  }
  std::printf(
      "%d layers of %lld rows, replayed %d times: largest relative error %.1e, %zu wrong, %llu launches by Cermet\n",
      kLayers, static_cast<long long>(rows), kReplays, worst, wrong,
      static_cast<unsigned long long>(context.counters().launches - launched));
  const double plain = microseconds(stream, launches);
  const double replayed = microseconds(stream, [&] { graph.replay(stream); });
  std::printf("launched one by one %.1f us, replayed %.1f us\n", plain, replayed);
  return wrong == 0 ? 0 : 1;
}

} // namespace

int main(int count, char** arguments) {
  try {
    const int64_t rows = count > 1 ? std::atoll(arguments[1]) : 64;
    if (rows < 1)
      throw std::runtime_error("usage: captured_graph [ROWS]; ROWS is at least 1");
    return run(rows);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "captured_graph: %s\n", failure.what());
    return 2;
  }
}
