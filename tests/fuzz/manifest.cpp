#include "fuzz/targets.h"
#include "trireme/io/checkpoint_manifest.h"
#include "trireme/io/checksum.h"

namespace trireme::fuzz {

void manifest(Input input) {
  // Without the right checksum at its end no text gets any further.
  std::string text(text_of(input));
  const std::string sum = io::checksum_text(io::checksum(text));
  text += ",\n\"checksum\": \"" + sum + "\"\n}\n";
  const std::string written = io::manifest_text(io::parse_manifest(text));
  fail_if(io::manifest_text(io::parse_manifest(written)) != written,
          "a manifest does not survive being written and read");
}

}  // namespace trireme::fuzz
