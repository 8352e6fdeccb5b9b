#include "Checkpoint.h"
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using Json = nlohmann::json;

class Checkpoint::Mapping {
public:
  explicit Mapping(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0)
      throw std::runtime_error(path + " cannot be read: " + std::strerror(errno));
    size_ = static_cast<size_t>(status.st_size);
    void* mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
      throw std::runtime_error(path + " cannot be mapped: " + std::strerror(errno));
    data_ = static_cast<const std::byte*>(mapped);
  }
  ~Mapping() { munmap(const_cast<std::byte*>(data_), size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

private:
  const std::byte* data_;
  size_t size_;
};

Checkpoint::Checkpoint(const std::string& directory) {
  std::ifstream index(directory + "/model.safetensors.index.json");
  std::set<std::string> files;
  if (index)
    for (const auto& [name, file] : Json::parse(index).at("weight_map").get<std::map<std::string, std::string>>())
      files.insert(file);
  else
    files.insert("model.safetensors");
  for (const std::string& file : files)
    add(directory + "/" + file);
}

// Eight bytes of a length, so many of JSON, and behind that the data at the offsets that the JSON has.
void Checkpoint::add(const std::string& path) {
  const auto file = files_.emplace_back(std::make_shared<Mapping>(path));
  uint64_t length = 0;
  if (file->size() >= sizeof(length))
    std::memcpy(&length, file->data(), sizeof(length));
  if (length == 0 || length > file->size() - sizeof(length))
    throw std::runtime_error(path + " is no safetensors file, or not all of one");
  const std::byte* data = file->data() + sizeof(length) + length;
  const size_t size = file->size() - sizeof(length) - length;
  const char* text = reinterpret_cast<const char*>(file->data()) + sizeof(length);
  const Json header = Json::parse(text, text + length);
  for (const auto& [name, stored] : header.items()) {
    if (name == "__metadata__")
      continue;
    const ElementType& type = elementType(stored.at("dtype").get<std::string>());
    const auto [begin, end] = stored.at("data_offsets").get<std::pair<size_t, size_t>>();
    Weight weight{data + begin, end - begin, type.dtype, stored.at("shape")};
    size_t bytes = static_cast<size_t>(type.bytes);
    for (int64_t extent : weight.sizes)
      bytes *= static_cast<size_t>(extent);
    if (begin > end || end > size || weight.bytes != bytes)
      throw std::runtime_error(path + ": " + name + " lies outside of the file or has another length than its shape");
    weights_.emplace(name, std::move(weight));
  }
}

const Weight& Checkpoint::weight(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end())
    throw std::runtime_error("the checkpoint has no " + name);
  return found->second;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> result;
  for (const auto& [name, weight] : weights_)
    result.push_back(name);
  return result;
}
