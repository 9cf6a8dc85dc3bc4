#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace trireme::io {

// Types of tensors in GGUF files, by the numbers that the files have. Quantised ones are rows of blocks:
//
//   q8_0   32 elements: d f16, codes i8                     code · d
//   q4_0   32 elements: d f16, codes of 4 bits              (code − 8) · d
//   q4_k   256 elements: d, dmin f16, eight pairs of 6 bits (s, m), codes of 4 bits
//                                                           code · s · d − m · dmin, s and m for each 32
enum class GgmlType : std::uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8, q4_k = 12, bf16 = 30 };

const char* name_of(GgmlType type);  // "q8_0"
std::optional<GgmlType> parse_ggml_type(std::string_view name);
// Of a number in a file; nothing: one that this version does not read.
std::optional<GgmlType> known_ggml_type(std::uint32_t number);

std::int64_t block_elements(GgmlType type);
std::size_t block_bytes(GgmlType type);
std::size_t ggml_bytes(GgmlType type, std::int64_t elements);

// Whole blocks. Rounding is to nearest, with scales from the extremes of each block, as llama.cpp's reference does for
// q8_0 and q4_0.
void encode_blocks(GgmlType type, std::span<const float> values, std::span<std::byte> out);
void decode_blocks(GgmlType type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace trireme::io
