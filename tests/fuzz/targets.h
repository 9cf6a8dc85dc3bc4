#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme::fuzz {

// One function per format that people hand us. It takes bytes to the reader that a user's file goes through, then uses
// what came out of it. On bad bytes nothing but trireme::Error may come out; `fail_if` states what must hold on good
// ones.
using Input = std::span<const std::uint8_t>;

void safetensors(Input input);     // a file: its header, then its tensors
void tokenizer(Input input);       // a tokenizer.json, a zero byte, text to encode
void config(Input input);          // a configuration's TOML
void hf_config(Input input);       // a Hugging Face config.json
void megatron_index(Input input);  // the .bin's size as eight bytes, then an .idx
void idx_images(Input input);      // the image file's size as four bytes, the image file, the label file
void cifar_images(Input input);    // a batch file
void graph(Input input);           // a module as text
void manifest(Input input);        // a checkpoint's manifest.json, up to its checksum
void gguf(Input input);            // a file: its metadata, then its tensors
void cluster(Input input);         // a cluster's description as TOML
void schedule(Input input);        // a pipeline's schedule as text
void plan(Input input);            // a plan's TOML

struct Target {
  std::string_view name;
  void (*run)(Input);
};
inline constexpr Target kTargets[] = {
    {"safetensors", safetensors},
    {"tokenizer", tokenizer},
    {"config", config},
    {"hf_config", hf_config},
    {"megatron_index", megatron_index},
    {"idx_images", idx_images},
    {"cifar_images", cifar_images},
    {"graph", graph},
    {"manifest", manifest},
    {"gguf", gguf},
    {"cluster", cluster},
    {"schedule", schedule},
    {"plan", plan},
};

// Runs one input. A refusal is how bad bytes should end; a check of ours that failed is not.
void run_input(void (*target)(Input), Input input);

// Stops the program, which is how a fuzzer learns of a finding.
void fail_if(bool wrong, const char* what);

inline std::string_view text_of(Input input) { return {reinterpret_cast<const char*>(input.data()), input.size()}; }
inline std::span<const std::byte> bytes_of(Input input) { return std::as_bytes(input); }

}  // namespace trireme::fuzz
