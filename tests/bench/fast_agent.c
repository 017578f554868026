/* An agent that costs next to nothing, so that what is measured is whoever drives it.
 *
 * Speaks just enough of the app-server protocol: one thread, turns, a tool call, an interrupt. It expects
 * requests whose first member is "method" and whose second is "id", as both programs of this bench write
 * them. fast_agent.py does the same where there is no C compiler.
 *
 *   --journal FILE   append "<monotonic ns> <pid> <issue> <event> [numbers]" to FILE; the issue is the name
 *                    of the working directory
 *   --turn-ms N      a turn takes this long
 *   --events N       a burst of N notifications per turn; one write each, as agents flush
 *   --bursts K       that many bursts, each begun when the file GATE/<issue>.<k> exists (k from 1)
 *   --gate DIR       where those files appear; after them the turn goes on when GATE/<issue>.end exists
 *   --move STATE     call the tool board_move before the turn ends
 *   --hold           never end a turn
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *issue = "";
static int journal = -1, turn_number, interrupted, answered, hold;
static long events, bursts, turn_ms, sent, tokens;
static const char *gate, *move_to;
static char input[1 << 20];
static size_t filled;

static long long now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void put(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(fd, data, size);
        if (done < 0 && errno != EINTR) _exit(0); /* nobody listens any more */
        if (done > 0) data += done, size -= (size_t)done;
    }
}

static void note(const char *event) {
    char line[512];
    if (journal < 0) return;
    int size = snprintf(line, sizeof line, "%lld %d %s %s %ld %ld\n", now_ns(), (int)getpid(), issue, event,
                        sent, tokens);
    put(journal, line, (size_t)size);
}

static void say(const char *format, ...) {
    char line[2048];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(line, sizeof line - 1, format, values);
    va_end(values);
    line[size++] = '\n';
    put(1, line, (size_t)size);
}

static void tell(const char *method, const char *params) {
    sent++;
    say("{\"method\":\"%s\",\"params\":{\"threadId\":\"t\",%s}}", method, params);
}

static void tell_usage(void) {
    char params[400];
    snprintf(params, sizeof params,
             "\"turnId\":\"u%d\",\"tokenUsage\":{\"total\":{\"totalTokens\":%ld,\"inputTokens\":%ld,"
             "\"cachedInputTokens\":0,\"outputTokens\":%ld,\"reasoningOutputTokens\":0},"
             "\"last\":{\"totalTokens\":7,\"inputTokens\":5,\"outputTokens\":2},\"modelContextWindow\":272000}",
             turn_number, tokens, tokens / 2, tokens - tokens / 2);
    tell("thread/tokenUsage/updated", params);
}

static void tell_item(const char *method, long number) {
    char params[400];
    snprintf(params, sizeof params,
             "\"turnId\":\"u%d\",\"item\":{\"type\":\"commandExecution\",\"id\":\"call_%ld\","
             "\"command\":\"make test\",\"cwd\":\"/tmp\",\"status\":\"inProgress\",\"exitCode\":null,"
             "\"aggregatedOutput\":null}", turn_number, number);
    tell(method, params);
}

static void tell_delta(long number) {
    char params[400];
    snprintf(params, sizeof params,
             "\"turnId\":\"u%d\",\"itemId\":\"msg_%08ld\",\"delta\":\"a piece of text as long as what a model "
             "writes between two flushes of its stream, %08ld\"", turn_number, number / 50, number);
    tell("item/agentMessage/delta", params);
}

static void burst(void) {
    for (long i = 0; i < events; i++) {
        if (i % 100 == 99) tokens += 7, tell_usage();
        else if (i % 50 == 0) tell_item("item/started", i / 50);
        else if (i % 50 == 48) tell_item("item/completed", i / 50);
        else tell_delta(i);
        if (i == events / 2) note("half");
    }
}

static void turn(const char *id);

static void handle(char *line) {
    if (strncmp(line, "{\"method\":\"", 11) != 0) { answered = 1; return; }
    char *method = line + 11, *end = strchr(method, '"');
    if (end == NULL) return;
    *end = 0;
    char *id = end + 1;
    if (strncmp(id, ",\"id\":", 6) != 0) return;
    id += 6;
    id[strcspn(id, ",}")] = 0;
    if (!strcmp(method, "initialize"))
        say("{\"id\":%s,\"result\":{\"userAgent\":\"fast-agent/1.0\",\"platformOs\":\"linux\"}}", id);
    else if (!strcmp(method, "account/read"))
        say("{\"id\":%s,\"result\":{\"account\":null,\"requiresOpenaiAuth\":false}}", id);
    else if (!strcmp(method, "thread/start"))
        say("{\"id\":%s,\"result\":{\"thread\":{\"id\":\"t\"}}}", id);
    else if (!strcmp(method, "turn/start"))
        turn(id);
    else if (!strcmp(method, "turn/interrupt")) {
        interrupted = 1;
        say("{\"id\":%s,\"result\":{}}", id);
    } else if (!strcmp(method, "thread/name/set"))
        say("{\"id\":%s,\"result\":{}}", id);
    else
        say("{\"id\":%s,\"error\":{\"code\":-32601,\"message\":\"unknown method\"}}", id);
}

/* Read once, waiting at most so long (-1: for ever), and handle whole lines; 0 at the end of input. */
static int listen_ms(int wait_ms) {
    struct pollfd in = {.fd = 0, .events = POLLIN};
    if (poll(&in, 1, wait_ms) <= 0) return 1;
    ssize_t got = read(0, input + filled, sizeof input - filled - 1);
    if (got <= 0) return got < 0 && errno == EINTR;
    filled += (size_t)got;
    input[filled] = 0;
    char *end;
    while ((end = memchr(input, '\n', filled)) != NULL) {
        static char line[sizeof input];
        size_t size = (size_t)(end - input);
        memcpy(line, input, size);
        line[size] = 0;
        filled -= size + 1;
        memmove(input, end + 1, filled);
        handle(line);
    }
    return 1;
}

static void until_gate(const char *name) {
    char path[4096];
    if (gate == NULL) return;
    snprintf(path, sizeof path, "%s/%s.%s", gate, issue, name);
    while (access(path, F_OK) != 0 && !interrupted)
        if (!listen_ms(1)) _exit(0);
}

static void work(void) {
    for (long k = 1; k <= bursts && !interrupted; k++) {
        char name[24];
        snprintf(name, sizeof name, "%ld", k);
        until_gate(name);
        note("burst");
        burst();
        note("burst_end");
    }
    if (bursts > 0) until_gate("end");
    long long until = now_ns() + turn_ms * 1000000LL;
    long long left;
    while (!interrupted && (hold || (left = until - now_ns()) > 0))
        if (!listen_ms(hold ? -1 : (int)(left / 1000000) + 1)) _exit(0);
    if (move_to != NULL && !interrupted) {
        answered = 0;
        say("{\"method\":\"item/tool/call\",\"id\":0,\"params\":{\"threadId\":\"t\",\"turnId\":\"u%d\","
            "\"callId\":\"c1\",\"namespace\":null,\"tool\":\"board_move\",\"arguments\":{\"state\":\"%s\"}}}",
            turn_number, move_to);
        while (!answered && !interrupted)
            if (!listen_ms(-1)) _exit(0);
    }
}

static void turn(const char *id) {
    turn_number++;
    say("{\"id\":%s,\"result\":{\"turn\":{\"id\":\"u%d\",\"status\":\"inProgress\"}}}", id, turn_number);
    char params[200];
    snprintf(params, sizeof params, "\"turn\":{\"id\":\"u%d\",\"status\":\"inProgress\"}", turn_number);
    tell("turn/started", params);
    note("turn");
    work();
    tokens += 11;
    tell_usage();
    snprintf(params, sizeof params, "\"turn\":{\"id\":\"u%d\",\"status\":\"%s\",\"error\":null}", turn_number,
             interrupted ? "interrupted" : "completed");
    tell("turn/completed", params);
    interrupted = 0;
    note("turn_end");
}

int main(int count, char **words) {
    static char here[4096];
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? words[i + 1] : "";
        if (!strcmp(words[i], "--hold")) { hold = 1; continue; }
        if (!strcmp(words[i], "--journal")) journal = open(value, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        else if (!strcmp(words[i], "--turn-ms")) turn_ms = atol(value);
        else if (!strcmp(words[i], "--events")) events = atol(value);
        else if (!strcmp(words[i], "--bursts")) bursts = atol(value);
        else if (!strcmp(words[i], "--gate")) gate = value;
        else if (!strcmp(words[i], "--move")) move_to = value;
        else { fprintf(stderr, "fast_agent: unknown switch %s\n", words[i]); return 2; }
        i++;
    }
    if (getcwd(here, sizeof here) != NULL) issue = strrchr(here, '/') + 1;
    note("start");
    while (listen_ms(-1)) continue;
    note("exit");
    return 0;
}
