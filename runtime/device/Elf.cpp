#include "runtime/device/Elf.h"
#include <cstring>
#include <elf.h>

namespace cermet {

namespace {

// `count` things of `size` bytes from `offset` on lie in `bytes`; no product or sum wraps.
bool holds(std::string_view bytes, uint64_t offset, uint64_t count, uint64_t size = 1) {
  return offset <= bytes.size() && (size == 0 || count <= (bytes.size() - offset) / size);
}

template <typename Header> Header headerAt(std::string_view bytes, uint64_t offset) {
  Header header;
  std::memcpy(&header, bytes.data() + offset, sizeof(header));
  return header;
}

Status cutOff() {
  return error(CERMET_NOT_FOUND, "its payload is an ELF image that is cut off");
}

} // namespace

Status checkElf(std::string_view bytes, unsigned machine) {
  if (!bytes.starts_with(std::string_view(ELFMAG, SELFMAG)) || bytes.size() <= EI_DATA ||
      bytes[EI_CLASS] != ELFCLASS64 || bytes[EI_DATA] != ELFDATA2LSB)
    return error(CERMET_NOT_FOUND, "its payload is no ELF image");
  if (bytes.size() < sizeof(Elf64_Ehdr))
    return cutOff();
  const auto header = headerAt<Elf64_Ehdr>(bytes, 0);
  if (header.e_machine != machine)
    return error(CERMET_NOT_FOUND, "its payload is an image for ELF machine {}, expected {}", header.e_machine,
                 machine);
  if ((header.e_phnum > 0 && header.e_phentsize != sizeof(Elf64_Phdr)) ||
      (header.e_shnum > 0 && header.e_shentsize != sizeof(Elf64_Shdr)) ||
      !holds(bytes, header.e_phoff, header.e_phnum, sizeof(Elf64_Phdr)) ||
      !holds(bytes, header.e_shoff, header.e_shnum, sizeof(Elf64_Shdr)))
    return cutOff();
  for (unsigned index = 0; index < header.e_phnum; ++index) {
    const auto segment = headerAt<Elf64_Phdr>(bytes, header.e_phoff + index * sizeof(Elf64_Phdr));
    if (!holds(bytes, segment.p_offset, segment.p_filesz))
      return cutOff();
  }
  for (unsigned index = 0; index < header.e_shnum; ++index) {
    const auto section = headerAt<Elf64_Shdr>(bytes, header.e_shoff + index * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
        !holds(bytes, section.sh_offset, section.sh_size))
      return cutOff();
  }
  return {};
}

} // namespace cermet
