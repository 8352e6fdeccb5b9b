// The weights of a Hugging Face checkpoint: safetensors files, one or several with an index. Files are mapped, so a
// weight costs memory when it is read, and this object outlives what points into it.
#pragma once
#include "ElementType.h"
#include <map>
#include <memory>
#include <vector>

struct Weight {
  const std::byte* data; // dense, row-major
  size_t bytes;
  cermet_dtype dtype;
  std::vector<int64_t> sizes;
};

class Checkpoint {
public:
  explicit Checkpoint(const std::string& directory);
  bool has(const std::string& name) const { return weights_.count(name) != 0; }
  // One that is not there is an error by its name.
  const Weight& weight(const std::string& name) const;
  std::vector<std::string> names() const;

private:
  class Mapping;
  void add(const std::string& path);
  std::vector<std::shared_ptr<Mapping>> files_;
  std::map<std::string, Weight> weights_;
};
