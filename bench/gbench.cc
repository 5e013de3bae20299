#include "gbench.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

/* The opaque gbench_state of C is a benchmark::State here, and never anything else. */
static benchmark::State &cpp(gbench_state *state)
{
    return *reinterpret_cast<benchmark::State *>(state);
}

/* Google Benchmark answers a format that it does not know with its help and a status of 0. */
static void check_format(const char *argument)
{
    for (const std::string name : {"--benchmark_format=", "--benchmark_out_format="}) {
        if (std::strncmp(argument, name.c_str(), name.size()) != 0) continue;
        const std::string value = argument + name.size();
        if (value == "console" || value == "json" || value == "csv") continue;
        std::fprintf(stderr, "linattn_bench: %sconsole, json or csv was expected, not '%s'\n",
                     name.c_str(), value.c_str());
        std::exit(1);
    }
}

void gbench_init(int *argc, char **argv, double min_time)
{
    for (int i = 1; i < *argc; i++) check_format(argv[i]);
    /* The first of two equal flags is overridden by the second, so ours goes in front. */
    static std::string flag = "--benchmark_min_time=" + std::to_string(min_time);
    std::vector<char *> args(argv, argv + *argc);
    args.insert(args.begin() + 1, &flag[0]);
    int count = static_cast<int>(args.size());
    args.push_back(nullptr);
    benchmark::Initialize(&count, args.data());
    for (int i = 0; i < count; i++) argv[i] = args[static_cast<size_t>(i)];
    *argc = count;
}

void gbench_register(const char *name, gbench_function *function, void *argument)
{
    const auto call = [function, argument](benchmark::State &state) {
        function(reinterpret_cast<gbench_state *>(&state), argument);
    };
    benchmark::RegisterBenchmark(name, call)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

void gbench_context(const char *key, const char *value) { benchmark::AddCustomContext(key, value); }

size_t gbench_run(void)
{
    const size_t count = benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return count;
}

bool gbench_next(gbench_state *state, size_t batch)
{
    return cpp(state).KeepRunningBatch(static_cast<benchmark::IterationCount>(batch));
}

void gbench_time(gbench_state *state, double seconds) { cpp(state).SetIterationTime(seconds); }

void gbench_counter(gbench_state *state, const char *name, double value)
{
    cpp(state).counters[name] = value;
}

void gbench_skip(gbench_state *state, const char *message) { cpp(state).SkipWithError(message); }
