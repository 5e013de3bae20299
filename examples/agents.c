/* agents: a game's loop in which everybody remembers.  SPDX: MIT

       cc -O2 examples/agents.c -o agents && ./agents

   300 agents look for what they need, and keep away from a wolf that a player moves. In each frame
   an agent sees one thing at most, and writes it into a memory of its own, a state of two heads:
   one finds places by what is there, the other what is there by the place. It asks both, and acts
   on the answers. One call of linattn_causal_many does that for all agents.

   The player's input comes 8 frames late, as over a network. Until then the game guesses; where the
   guess was wrong it goes back to that frame and replays. States are plain bytes: a copy saves
   them, and the same input makes the same bits. In the end the world must be, to the bit, that of a
   game whose input was never late, and the same on every instruction set. */

#define PROGRAM "agents"
#include "program.h"

#include <math.h> /* INFINITY */

#define LINATTN_IMPLEMENTATION
#include "../linattn.h"

static const char help[] = "usage: agents [--frames N] [--seed S] [--help or -h]\n"
                           "\n"
                           "Plays N frames (600) of game S (0) on every instruction set.\n"
                           "Exit status: 0, 1 where the bits differ, 2 for a failure.\n";
enum { OPTION_FRAMES, OPTION_SEED, OPTION_HELP, OPTION_COUNT };
static const char *const option_names[] = {"--frames", "--seed", "--help"};

enum { AGENTS = 300, HEADS = 2, DIM = 16, WOLF = 0, KINDS = DIM - 2, LATE = 8, LINE = 64 };
enum { BYTES = (LINATTN_STATE_BYTES(HEADS, DIM, DIM) + LINE - 1) / LINE * LINE };
typedef float rows[AGENTS][HEADS][DIM];

/* ---- The world: plain bytes ------------------------------------------------------------------ */

typedef struct place {
    float x, y; /* 0 to 1 */
} place;

typedef struct agent {
    place at, step;
    uint64_t need; /* the kind of thing that it looks for */
} agent;

typedef struct world {
    unsigned char memory[AGENTS][BYTES]; /* the agents' states */
    agent agents[AGENTS];
    place things[KINDS];
    uint64_t frame, found, random;
} world;

static place random_place(world *w)
{
    float x = random_float(&w->random);
    return (place){x, random_float(&w->random)};
}

static uint64_t random_need(world *w) { return 1 + random_bits(&w->random) % (KINDS - 1); }

static void begin_world(world *w, uint64_t seed)
{
    const linattn_config config = {.heads = HEADS, .dim_key = DIM, .map = LINATTN_MAP_EXP};
    memset(w, 0, sizeof *w);
    w->random = seed;
    for (int kind = 0; kind < KINDS; kind++) {
        w->things[kind] = random_place(w);
    }
    for (int i = 0; i < AGENTS; i++) {
        w->agents[i] = (agent){.at = random_place(w), .need = random_need(w)};
        require(linattn_state_init(&config, w->memory[i], BYTES), "a memory");
    }
}

/* ---- A frame --------------------------------------------------------------------------------- */

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

static place moved(place at, place step)
{
    return (place){clamp(at.x + step.x, 0, 1), clamp(at.y + step.y, 0, 1)};
}

static place step_towards(place from, place to)
{
    const float most = 0.01f;
    return (place){clamp(to.x - from.x, -most, most), clamp(to.y - from.y, -most, most)};
}

static int is_near(place a, place b, float radius)
{
    return (a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y) < radius * radius;
}

/* The key or query for one of 16 names. With the map exp, a name that agrees weighs 10,000 times as
   much as another. */
static void point_to(float x[DIM], int name, float all)
{
    for (int i = 0; i < DIM; i++) {
        x[i] = all + (i == name ? 10.0f : 0.0f);
    }
}

static int region(place at) { return (int)(at.y * 3.99f) * 4 + (int)(at.x * 3.99f); }

/* Queries: where is what I need, and what is there where I am going? Keys, what and where, and
   values for one thing in sight; for nothing a masked key. Every key is larger than those before,
   so that older memories fade; no length of the game makes exp overflow. */
static void perceive(const world *w, int i, rows q, rows k, rows v)
{
    const agent *a = &w->agents[i];
    int seen = (int)(w->frame % KINDS);
    place at = w->things[seen];
    float weight = is_near(a->at, at, 0.2f) ? 0.02f * (float)w->frame : -INFINITY;
    point_to(q[i][0], (int)a->need, 0);
    point_to(q[i][1], region(moved(a->at, a->step)), 0);
    point_to(k[i][0], seen, weight);
    point_to(k[i][1], region(at), weight);
    for (int head = 0; head < HEADS; head++) {
        memset(v[i][head], 0, sizeof v[i][head]);
        v[i][head][0] = at.x;
        v[i][head][1] = at.y;
        v[i][head][2 + seen] = 1;
    }
}

/* An answer is a mean of values: of places, and of the kinds, which tells how sure it is. */
static void act(world *w, agent *a, float answer[HEADS][DIM])
{
    place memory = {answer[0][0], answer[0][1]};
    if (answer[1][2 + WOLF] > 0.3f) { /* the wolf was there lately */
        a->step = (place){-a->step.y, a->step.x};
    } else if (answer[0][2 + a->need] > 0.5f && !is_near(memory, a->at, 0.01f)) {
        a->step = step_towards(a->at, memory);
    } else if (random_bits(&w->random) % 32 == 0) {
        a->step = step_towards(a->at, random_place(w));
    }
    a->at = moved(a->at, a->step);
    if (is_near(a->at, w->things[a->need], 0.03f)) {
        w->found++;
        a->need = random_need(w);
    }
}

static double play_frame(world *w, int input) /* returns seconds */
{
    static const place directions[] = {{0.02f, 0}, {0, 0.02f}, {-0.02f, 0}, {0, -0.02f}};
    static rows q, k, v, answers;
    void *states[AGENTS];
    w->things[WOLF] = moved(w->things[WOLF], directions[input]);
    if (random_bits(&w->random) % 64 == 0) { /* something is eaten up, and grows elsewhere */
        w->things[random_need(w)] = random_place(w);
    }
    for (int i = 0; i < AGENTS; i++) {
        states[i] = w->memory[i];
        perceive(w, i, q, k, v);
    }
    double begin = seconds_now();
    require(linattn_causal_many(states, AGENTS, linattn_rows(q[0][0]), linattn_rows(k[0][0]),
                                linattn_rows(v[0][0]), linattn_output_rows(answers[0][0]), 1, NULL),
            "the memories");
    double seconds = seconds_now() - begin;
    for (int i = 0; i < AGENTS; i++) {
        act(w, &w->agents[i], answers[i]);
    }
    w->frame++;
    return seconds;
}

/* ---- The game -------------------------------------------------------------------------------- */

/* The player turns every 32 frames, or does not. */
static int player_input(uint64_t seed, size_t frame)
{
    uint64_t random = ~seed + frame / 32;
    return (int)(random_bits(&random) % 4);
}

/* The input of each frame comes `late` frames later; until then it is taken to be the last one that
   came. Returns the nanoseconds per agent. */
static double play(world *w, uint64_t seed, size_t frames, size_t late, size_t *replayed)
{
    static world saved[LATE];
    int used[LATE], known = 0;
    double seconds = 0;
    size_t played = 0;
    begin_world(w, seed);
    for (size_t now = 0; now < frames + late; now++) {
        known = now < late ? known : player_input(seed, now - late);
        if (late && now >= late && used[now % LATE] != known) {
            *w = saved[now % LATE]; /* rewind by LATE frames */
        }
        while (w->frame <= now && w->frame < frames) {
            used[w->frame % LATE] = known;
            saved[w->frame % LATE] = *w;
            seconds += play_frame(w, known);
            played++;
        }
    }
    *replayed = played - frames;
    return 1e9 * seconds / ((double)played * AGENTS);
}

int main(int argc, char **argv)
{
    static world first, in_time, late;
    options given = {option_names, OPTION_COUNT, OPTION_HELP, help, {NULL}};
    read_options(&given, argc, argv);
    size_t frames = (size_t)whole_option(&given, OPTION_FRAMES, 1, 1000000, 600), replayed;
    uint64_t seed = whole_option(&given, OPTION_SEED, 0, UINT64_MAX, 0);
    int differ = 0;
    printf("%d agents of %d heads of %d, %zu frames\n\n"
           "         ns per agent   frames replayed\n",
           AGENTS, HEADS, DIM, frames);
    for (int isa = LINATTN_ISA_SCALAR; isa < LINATTN_ISA_COUNT; isa++) {
        if (linattn_isa_select((linattn_isa)isa) != LINATTN_OK) {
            continue; /* this machine lacks it */
        }
        double ns = play(&in_time, seed, frames, 0, &replayed);
        play(&late, seed, frames, LATE, &replayed);
        if (first.frame == 0) {
            first = in_time;
        }
        int differs = memcmp(&in_time, &late, sizeof late) || memcmp(&first, &late, sizeof late);
        printf("%-8s %12.1f %17zu   %s\n", linattn_isa_name((linattn_isa)isa), ns, replayed,
               differs ? "THE BITS DIFFER" : "the same bits");
        differ |= differs;
    }
    printf("\nthey found what they needed %" PRIu64 " times\n", first.found);
    finish_printing();
    return differ;
}
