#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/cli/commands.h"
#include "trireme/device/kernel.h"

namespace trireme::cli {

// The subcommands of `trireme bench` that have a file of their own.
void add_bench_attention(CLI::App& bench, Context& context);
void add_bench_checkpoint(CLI::App& bench, Context& context);
void add_bench_comm(CLI::App& bench, Context& context);
void add_bench_gemm(CLI::App& bench, Context& context);
void add_bench_generate(CLI::App& bench, Context& context);
void add_bench_offload(CLI::App& bench, Context& context);
void add_bench_overlap(CLI::App& bench, Context& context);
void add_bench_plans(CLI::App& bench, Context& context);
void add_bench_reduce(CLI::App& bench, Context& context);
void add_bench_scaling(CLI::App& bench, Context& context);

// Refuses keys on the command line that `trireme bench NAME` sets by itself. `why` follows: "it times 1, 2, … ranks".
void refuse_keys(const Context& context, std::string_view name, std::span<const std::string_view> keys,
                 std::string_view why);
// What the command line gives a key; empty: nothing.
std::string given_value(const Context& context, std::string_view key);

double median(std::vector<double> values);
// "cpu", "cuda", or "auto": a GPU where there is one. Refuses a GPU that is not there.
device::Kind device_named(const std::string& name);

}  // namespace trireme::cli
