// Payload: whether what an entry holds is an answer of its kind. The entry's own checksum says that the bytes are those
// that were written; this says that they can be used.
#pragma once
#include "runtime/cache/Entry.h"
#include "runtime/support/Status.h"

namespace cermet {

// A plan that parses; the JSON of a match or a gradient; for a kernel nothing, since loading it says more.
Status checkAnswer(EntryKind kind, std::string_view payload);
Status checkPayload(const Entry& entry);
// Also of a kernel: the image that its key's target asks for, whole. One for the host is loaded to see.
Status checkPayloadThoroughly(const Entry& entry);

} // namespace cermet
