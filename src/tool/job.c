/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <railyard/config.h>
#include <railyard/device.h>
#include <railyard/fault.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ry_tool_job_flags(struct ry_tool_job *job, struct ry_tool_flag *table, uint32_t used)
{
    const struct ry_tool_flag flags[] = {
        {"--pes", &job->pes, NULL, "N: PEs to start"},
        {"--nodes", &job->nodes, NULL, "M: nodes that they are split into"},
        {"--rails", &job->rails, NULL, "R or R0,R1,...: rails of a PE, or one number a node"},
        {"--ports-per-nic", &job->ports_per_nic, NULL, "N: ports of an emulated NIC (2)"},
        {"--channels", &job->channels, NULL, "C: channels to each peer (one a rail)"},
        {"--nic", &job->nic, NULL, "emu, verbs or mlx5"},
        {"--handler", &job->handler, NULL, "auto, gpu, cpu or cpu_host_memory"},
        {"--device", &job->device, NULL, "host or cuda"},
        {"--p2p", &job->p2p, NULL, "on or off: PEs of a node reach each other without a NIC"},
        {"--link-rate", &job->link_rate, NULL, "RATE or RATE0,RATE1,...: of each rail (100MB/s)"},
        {"--failover", &job->failover, NULL, "on, off or both"},
        {"--fault", &job->fault, NULL, "SPEC: what is to go wrong, see railyard fault --help"},
        {"--seed", &job->seed, NULL, "S: of everything random (1)"},
        {"--duration", &job->duration, NULL, "TIME: run this long, not a number of iterations"},
        {"--pes-as", &job->pes_as, NULL, "processes or threads"},
        {"--json", &job->json, NULL, "FILE: write JSON there, - is stdout"},
        {"--svg", &job->svg, NULL, "FILE: draw bytes per rail over time, with the faults"},
        {NULL, NULL, NULL, NULL},
    };
    _Static_assert(sizeof flags / sizeof flags[0] <= JOB_FLAGS - 16, "room for a command's own");
    memcpy(table + used, flags, sizeof flags);
}

int ry_tool_count(const char *command, const char *flag, const char *text, uint64_t least,
                  uint64_t most, uint64_t *out)
{
    uint64_t value;
    if (text[strspn(text, "0123456789KMG.")] != '\0' || ry_parse_size(text, &value) != RY_OK ||
        value < least || value > most)
        return ry_tool_error(command, "%s '%s' is no number from %llu to %llu", flag, text,
                             (unsigned long long)least, (unsigned long long)most);
    *out = value;
    return TOOL_OK;
}

int ry_tool_choice(const char *command, const char *flag, const char *text,
                   const char *const *choices, uint32_t *out)
{
    char list[128] = "";
    size_t len = 0;
    for (uint32_t i = 0; choices[i]; i++) {
        if (strcmp(text, choices[i]) == 0) {
            *out = i;
            return TOOL_OK;
        }
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s",
                                i == 0           ? ""
                                : choices[i + 1] ? ", "
                                                 : " or ",
                                choices[i]);
    }
    return ry_tool_error(command, "%s '%s' is unknown: use %s", flag, text, list);
}

static bool set_by_user(const char *name)
{
    ry_setting_info *list;
    uint32_t n;
    bool found = false;
    if (ry_config_list(NULL, 0, &list, &n) != RY_OK)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const char *mine =
            strncmp(list[i].name, "RAILYARD_", 9) == 0 ? list[i].name + 9 : list[i].name;
        if (strcmp(mine, name) == 0)
            found = strcmp(list[i].source, "default") != 0;
    }
    free(list);
    return found;
}

int ry_tool_job_set(struct ry_tool_job *job, bool keep, const char *format, ...)
{
    va_list args;
    char text[1200], name[64];
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    if (len < 0 || (size_t)len >= sizeof text)
        return ry_tool_error(job->command, "the value of %s is too long: at most %zu bytes", name,
                             sizeof text - sizeof name);
    if (keep && set_by_user(name))
        return TOOL_OK;
    char *copy = strdup(text);
    if (!copy || job->n_settings == JOB_SETTINGS) {
        free(copy);
        return ry_tool_error(job->command, "no memory for the settings: free some");
    }
    job->settings[job->n_settings++] = copy;
    return TOOL_OK;
}

static int pass_settings(struct ry_tool_job *job)
{
    const struct {
        const char *name, *value;
    } map[] = {
        {"RAILS", job->rails},       {"PORTS_PER_NIC", job->ports_per_nic},
        {"CHANNELS", job->channels}, {"NIC", job->nic},
        {"HANDLER", job->handler},   {"DEVICE", job->device},
        {"P2P", job->p2p},           {"LINK_RATE", job->link_rate},
        {"FAILOVER", job->failover}, {"SEED", job->seed},
    };
    int code = TOOL_OK;
    for (size_t i = 0; i < sizeof map / sizeof map[0] && code == TOOL_OK; i++) {
        if (map[i].value)
            code = ry_tool_job_set(job, false, "%s=%s", map[i].name, map[i].value);
    }
    return code;
}

/* The greatest number of a list as --rails takes it; 0 if it is none. */
static uint32_t greatest(const char *text)
{
    unsigned long most = 0;
    for (char *end; *text; text = *end ? end + 1 : end) {
        unsigned long v = strtoul(text, &end, 10);
        if (end == text || (*end && *end != ','))
            return 0;
        most = v > most ? v : most;
    }
    return (uint32_t)most;
}

static bool no_device(void)
{
    ry_device_port *ports;
    uint32_t n;
    if (ry_device_ports(&ports, &n) != RY_OK)
        return true;
    free(ports);
    return false;
}

/* What the settings say of rails and the NIC. */
static int look(struct ry_tool_job *job)
{
    ry_setting_info *list;
    uint32_t n;
    if (ry_config_list((const char *const *)job->settings, job->n_settings, &list, &n) != RY_OK)
        return ry_tool_error(job->command, "%s", ry_last_error());
    job->emulated = true;
    for (uint32_t i = 0; i < n; i++) {
        const char *name = list[i].name;
        name += strncmp(name, "RAILYARD_", 9) == 0 ? 9 : 0;
        if (strcmp(name, "RAILS") == 0)
            job->rails_most = greatest(list[i].value);
        else if (strcmp(name, "NIC") == 0)
            job->emulated = strcmp(list[i].value, "emu") == 0 ||
                            (strcmp(list[i].value, "auto") == 0 && no_device());
        else if (strcmp(name, "SEED") == 0)
            job->seed_value = strtoull(list[i].value, NULL, 10);
        else if (strcmp(name, "FAILOVER") == 0)
            job->both = strcmp(list[i].value, "both") == 0;
    }
    if (job->rails_most == 0 && job->emulated)
        job->rails_most = 2;
    free(list);
    return TOOL_OK;
}

static bool has(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

static int read_counts(struct ry_tool_job *job)
{
    uint64_t pes = job->n_pes, nodes;
    if (job->pes && ry_tool_count(job->command, "--pes", job->pes, 1, JOB_PES_MAX, &pes))
        return TOOL_BAD_INPUT;
    nodes = job->n_nodes < pes ? job->n_nodes : pes;
    if (job->nodes && ry_tool_count(job->command, "--nodes", job->nodes, 1, JOB_PES_MAX, &nodes))
        return TOOL_BAD_INPUT;
    if (nodes > pes)
        return ry_tool_error(job->command,
                             "--nodes %llu is more than the %llu PEs: each node needs one",
                             (unsigned long long)nodes, (unsigned long long)pes);
    job->n_pes = (uint32_t)pes;
    job->n_nodes = (uint32_t)nodes;
    return TOOL_OK;
}

int ry_tool_job_read(struct ry_tool_job *job, const char *command, uint32_t pes, uint32_t nodes)
{
    static const char *const as[] = {"processes", "threads", NULL};
    uint32_t threads = 0;
    job->command = command;
    job->n_pes = pes;
    job->n_nodes = nodes;
    job->launched = !has(JOB_REPORTS) && (has("RAILYARD_BOOT") || has("PMIX_RANK") ||
                                          (has("RANK") && has("WORLD_SIZE")));
    job->quiet =
        (job->json && strcmp(job->json, "-") == 0) || (job->svg && strcmp(job->svg, "-") == 0);
    if (job->json && job->svg && strcmp(job->json, "-") == 0 && strcmp(job->svg, "-") == 0)
        return ry_tool_error(command, "--json and --svg both want stdout: give one a file");
    if (read_counts(job) != TOOL_OK)
        return TOOL_BAD_INPUT;
    if (job->pes_as && ry_tool_choice(command, "--pes-as", job->pes_as, as, &threads))
        return TOOL_BAD_INPUT;
    job->threads = threads == 1;
    bool ours = has("RY_TOOL_REPORTS"); /* this command again, as a PE with the same flags */
    if (job->launched && !ours && (job->pes || job->nodes || job->pes_as))
        return ry_tool_error(command,
                             "--pes, --nodes and --pes-as are the launcher's to say: leave "
                             "them out under a launcher");
    if (job->duration &&
        (ry_parse_time(job->duration, &job->duration_ns) != RY_OK || job->duration_ns == 0))
        return ry_tool_error(command, "--duration '%s' is no time above 0: write 30s or 5m",
                             job->duration);
    if (pass_settings(job) != TOOL_OK || look(job) != TOOL_OK)
        return TOOL_BAD_INPUT;
    if (job->fault && job->threads && strncmp(job->fault, "kill", 4) == 0)
        return ry_tool_error(command, "kill ends a process: use --pes-as processes");
    if (job->fault && job->rails_most > 0 && !job->launched &&
        ry_fault_check(job->fault, job->n_pes, job->rails_most) != RY_OK)
        return ry_tool_error(command, "%s", ry_last_error());
    return TOOL_OK;
}

int ry_tool_job_check(const struct ry_tool_job *job)
{
    ry_setting_info *list;
    uint32_t n;
    if (ry_config_list((const char *const *)job->settings, job->n_settings, &list, &n) != RY_OK)
        return ry_tool_error(job->command, "%s", ry_last_error());
    free(list);
    return TOOL_OK;
}

void ry_tool_job_free(struct ry_tool_job *job)
{
    for (uint32_t i = 0; i < job->n_settings; i++)
        free(job->settings[i]);
    job->n_settings = 0;
}

int ry_tool_exit(int status)
{
    switch (status) {
    case RY_OK:
        return 0;
    case RY_ERR_INVALID:
    case RY_ERR_NO_MEMORY:
    case RY_ERR_UNSUPPORTED:
    case RY_ERR_EXISTS:
    case RY_ERR_NOT_FOUND:
    case RY_ERR_CONFIG:
    case RY_ERR_AUTH:
    case RY_ERR_SYSTEM:
    case RY_ERR_DEVICE:
        return TOOL_BAD_INPUT;
    case RY_ERR_TIMEOUT:
    case RY_ERR_PATH: /* at the start: a peer that cannot be connected */
    case RY_ERR_UNREACHABLE:
    case RY_ERR_PEER_LOST:
    case RY_ERR_LAUNCH:
        return TOOL_UNREACHABLE;
    default:
        return TOOL_FAILED;
    }
}
