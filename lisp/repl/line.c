/* line.c -- the line editor of the prompt: an entry of one or several lines, completion, history kept in a file.
 *
 * The editor waits outside Lisp (kr_blocking), so collections and other threads go on; questions that only Lisp can answer
 * (is this a whole form? what may this word become?) go back in through kr_unblocking.
 *
 * Note [signals]
 * While the editor runs, the signals it cares for are blocked and let in only while it waits for a key (ppoll), so none is lost
 * between a look at a flag and the wait. ^C comes out of the key reader as the key ^C, whose command drops the entry. At other
 * times ^C asks the context to stop at its next poll. A handler that runs in another thread passes the signal on to the editor's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <readline/readline.h>
#include <readline/history.h>
#include "lisp/repl/line.h"

enum { CTRL_C = 3, HISTORY_ENTRIES = 2000 };

static kr_context *context;
static pthread_t editor_thread;
static volatile sig_atomic_t editing, interrupted, resumed, ending;
static sigset_t handled_signals;

static struct {
    const char *initial; /* text the entry begins with, or NULL */
    double idle;         /* seconds between two calls of the timer jobs; 0: none */
    sigset_t waiting;    /* the mask while waiting for a key */
    bool dropped;
    bool history_loaded;
    char history[4096]; /* the file; "" if there is none */
} editor;

/* ---- signals ---- */

static void on_signal(int signal)
{
    if (!pthread_equal(pthread_self(), editor_thread)) {
        pthread_kill(editor_thread, signal);
        return;
    }
    switch (signal) {
    case SIGINT:
        if (editing)
            interrupted = 1;
        else
            kr_interrupt(context);
        break;
    case SIGCONT:
        resumed = editing;
        break;
    default:
        if (editing) {
            ending = signal;
        } else {
            struct sigaction standard = {.sa_handler = SIG_DFL};
            sigaction(signal, &standard, NULL);
            raise(signal);
        }
    }
}

static void install_handlers(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCONT};
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&handled_signals);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&handled_signals, signals[i]);
    action.sa_mask = handled_signals;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

/* ---- asking Lisp ---- */

struct question {
    const char *function, *text, *word;
    long number;  /* the answer, if it is an integer; else -1 */
    char *string; /* the answer, if it is a string: malloc'ed */
};

static void ask_inside(void *arg)
{
    struct question *q = arg;
    size_t scope = kr_scope_begin(context), n;
    kr_value argv[2], v;
    int argc = 0;
    int64_t number;
    char *bytes;
    if (q->text)
        argv[argc++] = kr_string(context, q->text);
    if (q->word)
        argv[argc++] = kr_string(context, q->word);
    if (kr_call(context, q->function, argc, argv, &v) == KR_OK) {
        if (kr_to_integer(context, v, &number) == KR_OK)
            q->number = (long)number;
        else if (kr_to_bytes(context, v, &bytes, &n) == KR_OK)
            q->string = strndup(bytes, n);
    }
    kr_scope_end(context, scope);
}

static struct question ask(const char *function, const char *text, const char *word)
{
    struct question q = {.function = function, .text = text, .word = word, .number = -1};
    kr_unblocking(context, ask_inside, &q);
    return q;
}

/* ---- history ---- */

static void find_history_file(void)
{
    const char *given = getenv("KARAKURI_HISTORY"), *home = getenv("HOME");
    if (given)
        snprintf(editor.history, sizeof editor.history, "%s", given);
    else if (home)
        snprintf(editor.history, sizeof editor.history, "%s/.karakuri_history", home);
}

/* When the first prompt is there already: a long history must not make it wait. */
static int load_history(void)
{
    rl_pre_input_hook = NULL;
    if (editor.history[0] == '\0')
        return 0;
    int fd = open(editor.history, O_CREAT | O_RDONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        editor.history[0] = '\0';
        return 0;
    }
    close(fd);
    read_history(editor.history);
    if (history_length > HISTORY_ENTRIES) {
        stifle_history(HISTORY_ENTRIES);
        write_history(editor.history);
        unstifle_history();
    }
    using_history();
    return 0;
}

static void remember(const char *line)
{
    if (line[strspn(line, " \t\n")] == '\0')
        return;
    HIST_ENTRY *last = history_length > 0 ? history_get(history_base + history_length - 1) : NULL;
    if (last && strcmp(last->line, line) == 0)
        return;
    add_history(line);
    if (editor.history[0])
        append_history(1, editor.history);
}

/* ---- keys ---- */

static int next_key(FILE *in)
{
    for (;;) {
        struct pollfd p = {.fd = fileno(in), .events = POLLIN};
        struct timespec wait = {(time_t)editor.idle, (long)((editor.idle - (double)(time_t)editor.idle) * 1e9)};
        /* ppoll lets no signal in if a key is there already. */
        pthread_sigmask(SIG_SETMASK, &editor.waiting, NULL);
        pthread_sigmask(SIG_BLOCK, &handled_signals, NULL);
        if (ending)
            return EOF;
        if (interrupted) {
            interrupted = 0;
            return CTRL_C;
        }
        if (resumed) {
            resumed = 0;
            rl_prep_terminal(1);
            rl_forced_update_display();
        }
        int n = ppoll(&p, 1, editor.idle > 0 ? &wait : NULL, &editor.waiting);
        if (n < 0) {
            if (errno != EINTR)
                return EOF;
            rl_check_signals(); /* a change of the window's size */
            if (!interrupted && !ending)
                ask("lisp::answer-signals", NULL, NULL);
        } else if (n == 0) {
            ask("lisp::run-timer-jobs", NULL, NULL);
        } else {
            unsigned char c;
            ssize_t got = read(p.fd, &c, 1);
            if (got == 1)
                return c;
            if (got == 0 || (errno != EINTR && errno != EAGAIN))
                return EOF;
        }
    }
}

static bool more_is_typed(void)
{
    struct pollfd p = {.fd = fileno(rl_instream), .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

/* Enter: a whole entry is accepted, wherever the cursor is; an unfinished one goes on in the next line, indented. Not while text
 * rushes in: what is pasted brings its own indentation. */
static int enter(int count, int key)
{
    struct question whole = ask("lisp::entry-complete", rl_line_buffer, NULL);
    if (whole.number < 0) {
        rl_point = rl_end;
        return rl_newline(count, key);
    }
    char *before = strndup(rl_line_buffer, (size_t)rl_point);
    long indent = before && !more_is_typed() ? ask("lisp::entry-complete", before, NULL).number : 0;
    free(before);
    rl_insert_text("\n");
    while (indent-- > 0)
        rl_insert_text(" ");
    return 0;
}

static int drop_entry(int count, int key)
{
    (void)count;
    (void)key;
    rl_point = rl_end;
    rl_redisplay();
    fputs("^C", rl_outstream);
    rl_crlf();
    editor.dropped = true;
    rl_done = 1;
    return 0;
}

static int line_begin(int at)
{
    while (at > 0 && rl_line_buffer[at - 1] != '\n')
        at--;
    return at;
}

static int line_end(int at)
{
    while (at < rl_end && rl_line_buffer[at] != '\n')
        at++;
    return at;
}

/* Up and down move among the lines of an entry, and from its first and last one to other entries. */
static int line_up(int count, int key)
{
    int begin = line_begin(rl_point), column = rl_point - begin;
    if (begin == 0)
        return rl_get_previous_history(count, key);
    int above = line_begin(begin - 1);
    rl_point = begin - 1 - above < column ? begin - 1 : above + column;
    return 0;
}

static int line_down(int count, int key)
{
    int end = line_end(rl_point), column = rl_point - line_begin(rl_point);
    if (end == rl_end)
        return rl_get_next_history(count, key);
    int below_end = line_end(end + 1);
    rl_point = end + 1 + column < below_end ? end + 1 + column : below_end;
    return 0;
}

/* ---- completion ---- */

static char *candidates, *next_candidate;

static char *next_match(const char *text, int state)
{
    (void)text;
    if (state == 0)
        next_candidate = candidates;
    if (!next_candidate || !*next_candidate)
        return NULL;
    char *end = strchrnul(next_candidate, '\n');
    char *match = strndup(next_candidate, (size_t)(end - next_candidate));
    next_candidate = *end ? end + 1 : end;
    return match;
}

static char **complete(const char *text, int start, int end)
{
    (void)end;
    if (rl_completion_quote_character)
        return NULL; /* in a string: the name of a file */
    char *before = strndup(rl_line_buffer, (size_t)start);
    if (!before)
        return NULL;
    candidates = ask("lisp::completions", before, text).string;
    char **matches = candidates ? rl_completion_matches(text, next_match) : NULL;
    /* A line of words may be meant for the shell: names of files serve there. */
    size_t blank = strspn(before, " \t\n");
    rl_attempted_completion_over = matches || before[blank] == '(' || before[blank] == '\'';
    free(candidates);
    free(before);
    candidates = NULL;
    return matches;
}

/* ---- the editor ---- */

static int insert_initial_text(void)
{
    rl_startup_hook = NULL;
    if (editor.initial)
        rl_insert_text(editor.initial);
    return 0;
}

static void bind_keys(Keymap map)
{
    rl_bind_key_in_map('\r', enter, map);
    rl_bind_key_in_map('\n', enter, map);
    rl_bind_key_in_map(CTRL_C, drop_entry, map);
    static const char *const up[] = {"\\e[A", "\\eOA"}, *const down[] = {"\\e[B", "\\eOB"};
    for (int i = 0; i < 2; i++) {
        rl_bind_keyseq_in_map(up[i], line_up, map);
        rl_bind_keyseq_in_map(down[i], line_down, map);
    }
}

static void start_editor(void)
{
    rl_readline_name = "Karakuri";
    rl_catch_signals = 0; /* Note [signals] */
    rl_change_environment = 0;
    rl_outstream = isatty(STDOUT_FILENO) ? stdout : stderr;
    rl_getc_function = next_key;
    rl_attempted_completion_function = complete;
    rl_completer_word_break_characters = (char *)(uintptr_t)" \t\n\"'`()#,;@";
    rl_basic_quote_characters = "\"";
    rl_completer_quote_characters = "\"";
    rl_pre_input_hook = load_history;
    history_comment_char = '#'; /* with times, entries of several lines survive in the file */
    history_write_timestamps = 1;
    rl_initialize();
    rl_variable_bind("blink-matching-paren", "on");
    Keymap emacs = rl_get_keymap_by_name("emacs-standard"), vi = rl_get_keymap_by_name("vi-insert");
    bind_keys(emacs);
    rl_bind_key_in_map(16, line_up, emacs);   /* ^P */
    rl_bind_key_in_map(14, line_down, emacs); /* ^N */
    bind_keys(vi);
    find_history_file();
}

struct edit {
    const char *prompt;
    char *line;
};

static void edit(void *arg)
{
    struct edit *e = arg;
    static bool started;
    pthread_sigmask(SIG_BLOCK, &handled_signals, &editor.waiting);
    for (int s = 1; s < NSIG; s++)
        if (sigismember(&handled_signals, s) == 1)
            sigdelset(&editor.waiting, s);
    if (!started)
        start_editor();
    started = true;
    editing = 1;
    editor.dropped = false;
    rl_startup_hook = insert_initial_text;
    e->line = readline(e->prompt);
    editing = 0;
    if (e->line && !editor.dropped)
        remember(e->line);
    if (ending) {
        signal(ending, SIG_DFL);
        pthread_sigmask(SIG_UNBLOCK, &handled_signals, NULL);
        raise(ending);
    }
    pthread_sigmask(SIG_UNBLOCK, &handled_signals, NULL);
}

static char *copy_of(kr_context *ctx, kr_value v)
{
    char *bytes;
    size_t n;
    return kr_to_bytes(ctx, v, &bytes, &n) == KR_OK ? strndup(bytes, n) : NULL;
}

static kr_value edit_line(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc;
    (void)user;
    char *prompt = copy_of(ctx, argv[0]), *initial = copy_of(ctx, argv[1]);
    struct edit e = {.prompt = prompt ? prompt : ""};
    editor.initial = initial;
    editor.idle = 0;
    kr_to_real(ctx, argv[2], &editor.idle);
    kr_blocking(ctx, edit, &e);
    free(prompt);
    free(initial);
    if (!e.line)
        return kr_nil();
    bool dropped = editor.dropped;
    kr_value v = dropped ? kr_boolean(ctx, true) : kr_string(ctx, e.line);
    free(e.line);
    /* No room for the text: it is as if it had been dropped. */
    return kr_is_nil(v) ? kr_boolean(ctx, true) : v;
}

void line_init(kr_context *ctx)
{
    context = ctx;
    editor_thread = pthread_self();
    install_handlers();
    kr_define(ctx, "lisp::%edit-line", "(prompt initial idle)",
              "Have the user edit an entry that begins with INITIAL, a string or nil. IDLE is how many seconds lie between two rounds of "
              "*timer-job*, or nil. Returns the text, t if it was dropped, or nil at the end of the input.",
              edit_line, NULL);
}
