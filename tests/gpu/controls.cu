// One planted defect per tool of compute-sanitizer: the tool must find it, or its silence about our kernels means
// nothing. `controls clean` has no defect and must pass all of them.
#include <cstdio>
#include <cstring>

__global__ void clean(float* values) { values[threadIdx.x] += 1; }

__global__ void memcheck(float* values) { values[threadIdx.x + 1024 * 1024] = 1; } // far outside

__global__ void racecheck(float* values) {
  __shared__ float shared[64];
  shared[threadIdx.x] = values[threadIdx.x];
  values[threadIdx.x] = shared[63 - threadIdx.x]; // no barrier between the warps
}

__global__ void initcheck(float* values) { values[threadIdx.x] += 1; } // of memory that nothing wrote

__global__ void synccheck(float* values) {
  if (threadIdx.x % 32 < 16)
    __syncthreads(); // half of each warp
  values[threadIdx.x] = 1;
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "clean";
  float* values = nullptr;
  cudaMalloc(&values, 64 * sizeof(float));
  if (strcmp(name, "initcheck") != 0)
    cudaMemset(values, 0, 64 * sizeof(float));
  if (strcmp(name, "clean") == 0)
    clean<<<1, 64>>>(values);
  else if (strcmp(name, "memcheck") == 0)
    memcheck<<<1, 64>>>(values);
  else if (strcmp(name, "racecheck") == 0)
    racecheck<<<1, 64>>>(values);
  else if (strcmp(name, "initcheck") == 0)
    initcheck<<<1, 64>>>(values);
  else if (strcmp(name, "synccheck") == 0)
    synccheck<<<1, 64>>>(values);
  else
    return fprintf(stderr, "unknown control %s\n", name), 2;
  cudaDeviceSynchronize();
  printf("%s: %s\n", name, cudaGetErrorString(cudaGetLastError()));
  return 0;
}
