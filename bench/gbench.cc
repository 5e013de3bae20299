#include "gbench.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

/* The opaque gbench_state of C is a benchmark::State here, and never anything else. */
static benchmark::State &cpp(gbench_state *state)
{
    return *reinterpret_cast<benchmark::State *>(state);
}

char *gbench_value(char *argument, const char *option)
{
    const size_t length = std::strlen(option);
    return std::strncmp(argument, option, length) == 0 ? argument + length : nullptr;
}

/* Google Benchmark answers a format that it does not know with its help and a status of 0. */
static void check_format(char *argument)
{
    for (const std::string name : {"--benchmark_format=", "--benchmark_out_format="}) {
        const char *text = gbench_value(argument, name.c_str());
        if (!text) continue;
        const std::string value = text;
        if (value == "console" || value == "json" || value == "csv") continue;
        std::fprintf(stderr, "linattn_bench: %sconsole, json or csv was expected, not '%s'\n",
                     name.c_str(), value.c_str());
        std::exit(1);
    }
}

/* Seconds are a number alone to Google Benchmark before 1.8, and from then on one that ends in s,
   though it takes the other with a remark. */
static void read_seconds(char *argument)
{
    char *text = gbench_value(argument, "--benchmark_min_time="), *end;
    if (!text) return;
    std::strtod(text, &end);
    if (end != text && std::strcmp(end, "s") == 0) *end = '\0';
}

static std::string out_file, out_format = "json";

/* One that the environment names, by BENCHMARK_OUT, is not looked after. */
static void find_out_file(char *argument)
{
    if (const char *file = gbench_value(argument, "--benchmark_out=")) out_file = file;
    if (const char *format = gbench_value(argument, "--benchmark_out_format=")) out_format = format;
}

void gbench_init(int *argc, char **argv, double min_time)
{
    for (int i = 1; i < *argc; i++) {
        check_format(argv[i]);
        read_seconds(argv[i]);
        find_out_file(argv[i]);
    }
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

static bool file_is_written = true;

/* Google Benchmark does not look whether its file could be written. */
template <class Reporter> class watched : public Reporter
{
  public:
    using Reporter::Reporter;
    void Finalize() override
    {
        Reporter::Finalize();
        file_is_written = static_cast<bool>(this->GetOutputStream().flush());
    }
};

static std::unique_ptr<benchmark::BenchmarkReporter> file_reporter(void)
{
    using reporter = std::unique_ptr<benchmark::BenchmarkReporter>;
    if (out_file.empty()) return nullptr;
    BENCHMARK_DISABLE_DEPRECATED_WARNING
    if (out_format == "csv") return reporter(new watched<benchmark::CSVReporter>);
    BENCHMARK_RESTORE_DEPRECATED_WARNING
    if (out_format == "json") return reporter(new watched<benchmark::JSONReporter>);
    using console = benchmark::ConsoleReporter;
    return reporter(new watched<console>(console::OO_None));
}

size_t gbench_run(void)
{
    const auto file = file_reporter();
    const size_t count = benchmark::RunSpecifiedBenchmarks(nullptr, file.get());
    benchmark::Shutdown();
    return count;
}

bool gbench_is_written(void)
{
    const bool printed = std::cout.flush() && std::fflush(stdout) == 0 && !std::ferror(stdout);
    return printed && file_is_written;
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
