#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// "25MiB" → 26214400. Units B, KB/KiB, MB/MiB, GB/GiB, TB/TiB; a bare number is bytes. Nothing on malformed text.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
// "10min", "3h50m", "45s", "200ms" → seconds. Nothing on malformed text.
std::optional<double> parse_duration(std::string_view text);

std::string format_bytes(std::uint64_t bytes);  // "14.0 MiB"
std::string format_count(std::uint64_t count);  // "842,496"
std::string format_duration(double seconds);    // "1m 23s", "850 ms"
std::string format_rate(double per_second);     // "20.4k"

// The candidate a person most likely meant, or nothing when none is near (edit distance with transpositions).
std::optional<std::string> nearest(std::string_view text, std::span<const std::string> candidates);
// The same for the end of a message: "; the nearest is 'blocks.0.ln1'", or nothing.
std::string nearest_text(std::string_view text, const std::vector<std::string>& candidates);

std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

// "▁▂▅█" for a series, resampled to `width` columns.
std::string sparkline(std::span<const double> values, int width);

}  // namespace trireme
