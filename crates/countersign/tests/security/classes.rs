//! The table of classes: each fault that a program of this kind really had, and the tests that show that it is not here.

use std::{collections::BTreeSet, fs, path::Path};

/// One class of fault.
struct FaultClass {
    name: &'static str,
    /// Source of the incident: an advisory or a public thread.
    record: &'static str,
    /// Files below `crates/`, each with the names of tests in it.
    shown_by: &'static [(&'static str, &'static [&'static str])],
    /// Part of it that does not apply yet, and why.
    open: &'static str,
}

const fn class(
    name: &'static str,
    record: &'static str,
    shown_by: &'static [(&'static str, &'static [&'static str])],
) -> FaultClass {
    FaultClass { name, record, shown_by, open: "" }
}

impl FaultClass {
    const fn open(self, open: &'static str) -> Self {
        Self { open, ..self }
    }
}

const BROWSERS: &str = "countersign/tests/security/browsers.rs";
const CANARIES: &str = "countersign/tests/security/canaries.rs";
const DOORS: &str = "countersign/tests/security/access_table.rs";
const FORMS: &str = "countersign/tests/security/shell_forms.rs";
const NAMES: &str = "countersign/tests/security/hosts_and_credentials.rs";
const CHILDREN: &str = "countersign/tests/security/child_processes.rs";
const REFUSALS: &str = "adapter-gjc/src/bridge/tests/refusals.rs";
const RECORDED: &str = "core/src/policy/evaluate/tests/recorded.rs";
const EVALUATE: &str = "core/src/policy/evaluate/tests.rs";
const SECRETS: &str = "countersign/tests/security/secrets.rs";
const STARTS: &str = "core/tests/it/settle/call_starts.rs";
const TAPS: &str = "telegram/src/tests/taps.rs";

const CLASSES: [FaultClass; 29] = [
    class(
        "cross-site WebSocket hijacking, no look at Origin on loopback",
        "CVE-2026-25253, CVE-2025-52882",
        &[
            (
                BROWSERS,
                &[
                    "cross_site_websocket_hijacking",
                    "a_cookie_alone_opens_no_websocket",
                    "no_page_takes_the_address_of_a_server_from_its_own",
                ],
            ),
            (REFUSALS, &["other_origins_and_host_names_are_refused"]),
        ],
    ),
    class(
        "HTTP on localhost without authentication, and CORS for everybody",
        "CVE-2026-22812",
        &[
            (
                NAMES,
                &[
                    "unauthenticated_localhost_http",
                    "an_adapter_that_needs_a_credential_refuses_connections_without_one",
                ],
            ),
            (DOORS, &["privileged_mutation_without_auth"]),
            (
                "countersign/tests/process/start_failures.rs",
                &["an_address_that_others_reach_needs_a_credential_and_tls_or_the_flag"],
            ),
            ("config/src/tests/files.rs", &["an_address_that_others_reach_needs_a_credential_and_tls"]),
            (REFUSALS, &["nothing_is_on_by_itself_and_help_says_so", "every_refusal_comes_in_its_order"]),
        ],
    ),
    class(
        "DNS rebinding",
        "CVE-2025-66414, CVE-2025-66416, CVE-2026-34742, CVE-2026-42559",
        &[
            (NAMES, &["dns_rebinding", "names_of_a_host_that_were_made_by_chance_are_refused"]),
            ("http/src/listen/guard.rs", &["only_names_of_the_gateway_are_answered"]),
            (REFUSALS, &["other_origins_and_host_names_are_refused"]),
        ],
    ),
    class(
        "privileged mutation without authentication",
        "CVE-2026-25593",
        &[
            (
                DOORS,
                &[
                    "privileged_mutation_without_auth",
                    "a_page_without_its_token_acts_nowhere",
                    "every_route_over_http_has_a_row",
                    "every_method_of_the_gsv_wire_is_refused_to_whom_its_row_does_not_name",
                ],
            ),
            ("adapter-gjc/tests/process/unattended.rs", &["what_a_declaration_does_not_cover_is_refused"]),
            ("core/tests/it/unattended/admission.rs", &["a_command_of_the_host_needs_its_scope_and_then_its_class"]),
        ],
    ),
    class(
        "scopes that a client declares for itself",
        "GHSA-rqpp-rjj8-7wv8",
        &[
            (NAMES, &["self_declared_scopes"]),
            ("api/tests/process/routes.rs", &["a_token_does_what_its_scopes_say_until_it_is_removed"]),
            ("adapter-gjc/tests/process/unattended.rs", &["declaring_again_only_narrows"]),
        ],
    ),
    class(
        "a tool that says where requests go",
        "CVE-2026-26322",
        &[
            ("runtime/tests/it/services/requests.rs", &["values_stand_in_path_and_query_as_data"]),
            (
                "countersign/tests/security/network_egress.rs",
                &[
                    "a_listed_host_is_reached_and_nothing_else",
                    "a_host_that_a_person_allows_is_reached_by_that_call_alone",
                    "an_unlisted_host_needs_approval_while_the_command_waits",
                    "the_reason_for_denying_a_host_is_reported",
                    "a_gateway_that_dies_while_a_command_waits_for_a_host_reaches_nothing",
                    "a_request_without_a_host_name_is_refused_without_a_gate",
                    "what_a_call_leaves_behind_has_no_way_out",
                ],
            ),
            (
                "runtime/tests/it/services/redirects.rs",
                &[
                    "another_origin_gets_no_credentials_nor_does_the_way_back",
                    "no_redirect_is_followed_for_what_changes_something",
                    "only_http_is_followed",
                ],
            ),
            ("runtime/tests/it/services/credentials.rs", &["an_argument_cannot_take_the_place_of_the_query_parameter"]),
            ("telegram/src/client/tests.rs", &["no_redirect_is_followed"]),
            ("adapter-gsv/tests/process/webhook.rs", &["a_redirect_is_not_followed_and_the_letter_is_not_tried_again"]),
            ("node-client/src/address.rs", &["a_token_goes_over_tls_or_stays_on_this_machine"]),
        ],
    ),
    class(
        "a side door to tools, and approval by a part of a name",
        "GHSA-943q-mwmv-hhvh",
        &[
            (
                "adapter-gsv/tests/process/nodes.rs",
                &["a_rule_that_denies_stops_what_a_client_has_a_node_do", "what_cannot_be_called_is_refused"],
            ),
            ("adapter-agent-gate/tests/process/replies.rs", &["policy_decides_what_reaches_the_service"]),
            (
                "core/tests/it/settle/judge.rs",
                &["a_tool_that_may_change_something_needs_approval_whatever_its_concurrency"],
            ),
            (EVALUATE, &["a_contract_denies_the_classes_that_it_does_not_name"]),
        ],
    ),
    class(
        "tokens in addresses and over plain sockets",
        "windows-node#349, agent37 gateway#25",
        &[
            (NAMES, &["token_in_url"]),
            (
                CANARIES,
                &[
                    "no_output_of_a_gateway_contains_a_credential",
                    "no_output_of_a_host_contains_a_credential_at_the_highest_log_level",
                    "a_spelling_of_a_secret_is_found",
                ],
            ),
            ("adapter-agent-gate/tests/process/command_line.rs", &["no_token_lies_in_any_file_but_the_configuration"]),
            ("node-client/src/address.rs", &["a_token_goes_over_tls_or_stays_on_this_machine"]),
            ("adapter-gsv/tests/process/settings.rs", &["a_secret_lies_in_its_own_file_and_nowhere_else"]),
            (
                SECRETS,
                &[
                    "a_secret_reaches_its_service_only",
                    "a_command_gets_a_secret_that_the_model_never_sees",
                    "a_command_cannot_read_the_file_of_a_secret",
                    "a_host_without_secrets_gets_an_error_that_there_are_none",
                ],
            ),
            ("adapter-gjc/tests/process/bridge.rs", &["commands_of_the_agent_do_not_know_the_token"]),
        ],
    ),
    class(
        "allow lists by prefix, and commands behind commands",
        "crush#3425, crush#2882, codewhale#5161, cli-mcp-server#17, orchestkit#4216",
        &[
            (FORMS, &["allow_list_prefix_and_chaining"]),
            (RECORDED, &["every_recorded_shell_line_gets_its_verdict"]),
            (EVALUATE, &["an_allow_never_widens_by_what_is_appended"]),
        ],
    ),
    class(
        "command substitution, redirection, here documents",
        "qwen-code#4386",
        &[
            ("countersign/tests/security/foreign_folders.rs", &["text_that_looks_like_commands"]),
            (FORMS, &["allow_list_prefix_and_chaining"]),
            (RECORDED, &["every_recorded_shell_line_gets_its_verdict"]),
            ("shell-analysis/src/word.rs", &["what_expands_is_marked_and_what_runs_is_found"]),
        ],
    ),
    class(
        "programs that run programs",
        "claude-code#92542, goclaw#1202, GHSA-796m-2973-wc5q, CVE-2026-29607",
        &[
            (FORMS, &["allow_list_prefix_and_chaining", "harmless_programs_that_run_another"]),
            (
                "shell-analysis/src/classes/tests.rs",
                &[
                    "no_wrapping_lowers_the_class_of_any_line_of_the_table",
                    "no_prefix_lowers_the_class_of_a_plain_command",
                ],
            ),
            ("core/src/policy/propose.rs", &["only_a_plain_command_without_power_over_others_offers_a_pattern"]),
        ],
    ),
    class(
        "what the arguments of interpreters and package managers can do",
        "openworker#308",
        &[
            ("shell-analysis/src/programs.rs", &["a_rule_may_name_a_script_but_not_an_interpreter_alone"]),
            (EVALUATE, &["rules_that_make_no_sense_do_not_load_and_odd_ones_warn"]),
            ("core/src/policy/propose.rs", &["only_a_plain_command_without_power_over_others_offers_a_pattern"]),
        ],
    ),
    class(
        "another spelling of a program's name",
        "codex#37079",
        &[(FORMS, &["argv0_spelling"]), (RECORDED, &["every_recorded_shell_line_gets_its_verdict"])],
    )
    .open("a copy of a program under a name of its own is another program to a rule: rules know names, not contents"),
    class(
        "settings that a foreign repository brings",
        "CVE-2022-24765",
        &[
            ("countersign/tests/security/foreign_folders.rs", &["a_foreign_repository"]),
            (RECORDED, &["every_recorded_shell_line_gets_its_verdict"]),
        ],
    ),
    class(
        "variables, assignments and builtins",
        "pi-packages#481, CVE-2026-22708",
        &[
            (FORMS, &["allow_list_prefix_and_chaining"]),
            (EVALUATE, &["variables_of_a_shell_call_are_judged_like_assignments"]),
            ("tools/src/environment.rs", &["the_server_hands_on_the_named_variables_only"]),
            (RECORDED, &["every_recorded_shell_line_gets_its_verdict"]),
        ],
    ),
    class(
        "a check before the shell expands",
        "CVE-2026-28463",
        &[
            (FORMS, &["allow_list_prefix_and_chaining"]),
            (RECORDED, &["every_recorded_shell_line_gets_its_verdict"]),
            ("shell-analysis/src/word.rs", &["a_word_is_its_text_where_nothing_expands"]),
        ],
    ),
    class(
        "shown is not run: identity but for white space",
        "CVE-2026-32065",
        &[
            ("core/src/policy/subject.rs", &["an_exact_digest_depends_on_every_argument_and_the_folder"]),
            (STARTS, &["an_approval_holds_for_the_folder_that_was_shown"]),
            ("adapter-agent-gate/tests/process/decisions.rs", &["a_grant_covers_what_was_shown_until_it_is_revoked"]),
        ],
    ),
    class(
        "shown is not run: cut off",
        "GHSA-xww8-gqvh-92x9, cadis#732",
        &[
            (
                TAPS,
                &["what_is_too_long_is_sent_whole_before_it_can_be_allowed", "what_is_far_too_long_can_only_be_denied"],
            ),
            ("telegram/src/telegram_card/tests.rs", &["a_card_of_any_length_fits_into_a_message"]),
            ("countersign/src/gates/watch/screen.rs", &["what_was_not_shown_whole_is_not_allowed_but_can_be_denied"]),
            ("adapter-gsv/tests/process/approvals.rs", &["what_would_run_is_shown_whole_and_the_next_message_answers"]),
            ("console/tests/process/gates.rs", &["only_what_was_shown_is_allowed_and_only_what_is_offered"]),
        ],
    ),
    class(
        "shown is not run: zero width, bidirectional, terminal and Markdown signs",
        "GHSA-pcqg-f7rg-xfvv, hermes#81403, zeroclaw#9396, agent-secret#66, deno#36195",
        &[
            (
                "countersign/tests/security/hidden_text.rs",
                &[
                    "shown_is_not_run_zero_width_bidi_ansi_and_fences",
                    "a_prompt_in_a_chat_reads_back",
                    "a_hosts_dialog_reads_back",
                ],
            ),
            ("view/src/escape.rs", &["nothing_hidden_survives_and_nothing_is_lost"]),
            ("view/src/gate_card.rs", &["a_value_cannot_pretend_to_be_another_argument"]),
            ("view/src/export/tests.rs", &["hostile_content_stays_text_everywhere"]),
        ],
    ),
    class(
        "what was approved changes before it runs",
        "openclaw#124738, openclaw#124858, openclaw#107683, CVE-2025-54136",
        &[
            ("tools/src/disk.rs", &["a_link_put_there_after_the_decision_is_not_followed"]),
            (STARTS, &["an_approval_holds_for_the_folder_that_was_shown"]),
            ("countersign/tests/process/signals.rs", &["rules_that_came_after_the_request_still_deny"]),
            (
                "countersign/tests/security/approved_files.rs",
                &[
                    "what_changed_since_it_was_approved_does_not_run",
                    "what_stayed_as_it_was_runs",
                    "a_working_folder_is_the_one_that_was_approved",
                    "everyday_commands_run_while_other_work_continues",
                    "a_folder_may_be_named_in_every_way",
                    "a_file_written_by_the_same_message_needs_another_approval",
                    "what_was_approved_binds_another_process",
                    "what_was_decided_and_not_begun_binds_another_process",
                ],
            ),
            ("tools/src/pins/tests.rs", &["every_way_to_change_what_is_run_is_seen"]),
        ],
    )
    .open("a file that changes in the moment between the last look and the shell's own, or while its line runs"),
    class(
        "what was taken back is still in a cache",
        "openclaw#78225, openclaw#103515, openclaw#101906",
        &[
            (
                STARTS,
                &[
                    "what_came_since_it_was_judged_wins_when_a_call_starts",
                    "a_grant_that_was_revoked_since_does_not_start_a_call",
                    "a_persons_denial_of_the_same_thing_wins_over_an_earlier_allow",
                ],
            ),
            ("core/tests/it/gates.rs", &["a_rule_that_came_since_wins_when_a_call_starts"]),
            ("countersign/tests/process/crash.rs", &["a_kill_anywhere_after_the_approval_leaves_at_most_one_action"]),
        ],
    ),
    class(
        "an approval that is replayed",
        "GHSA-hjvp-qhm6-wrh2",
        &[
            ("api/tests/process/routes.rs", &["a_gate_is_listed_read_and_answered_once"]),
            (
                "countersign/tests/process/crash_at_each_commit.rs",
                &["whatever_was_the_last_commit_the_action_happens_at_most_once"],
            ),
            (TAPS, &["a_tap_that_is_delivered_twice_is_the_same_answer"]),
            ("telegram/src/refs.rs", &["whatever_is_changed_on_a_button_makes_it_worthless"]),
            ("adapter-gjc/tests/process/gates.rs", &["an_unattended_host_answers_gates_each_once"]),
            ("adapter-gsv/tests/process/approvals.rs", &["a_word_that_comes_twice_allows_one_thing"]),
            ("adapter-hermes/tests/process/prompts.rs", &["an_answer_without_a_name_that_is_posted_twice_answers_one"]),
        ],
    ),
    class(
        "somebody in a chat who may not approve",
        "hermes#18180, zeroclaw#9838, cadis#946, cadis#1032",
        &[
            (TAPS, &["a_user_who_may_not_answer_gets_no_reply", "a_button_that_means_nothing_has_expired"]),
            (
                "policy-admin/tests/process/approvals.rs",
                &["only_those_whom_the_rule_names_allow_and_anybody_denies", "whom_nobody_knows_is_no_approver"],
            ),
            (
                "telegram/tests/process/chat_network.rs",
                &["approvers_may_write_and_answer_the_gates_of_their_runs_in_the_chat"],
            ),
            (CHILDREN, &["a_child_of_an_agent_cannot_send_what_others_sign"]),
        ],
    ),
    class(
        "an answer over somebody else's connection",
        "GHSA-84j6-jc92-77jm",
        &[
            (DOORS, &["wrong_connection_answers"]),
            (
                "countersign/tests/security/realms.rs",
                &[
                    "credentials_of_one_realm_open_nothing_of_another",
                    "a_request_without_a_realm_gets_nothing_and_a_token_names_its_realm",
                    "a_person_logs_in_below_the_path_of_a_realm_under_the_name_of_the_process",
                    "what_happens_in_one_realm_is_unknown_in_another",
                    "commands_of_one_realm_do_not_read_the_files_of_another",
                    "a_command_for_one_gateway_names_the_realms",
                ],
            ),
            (
                CHILDREN,
                &[
                    "a_child_of_an_agent_acts_at_no_route_whatever_it_shows",
                    "a_child_of_an_agent_is_no_node_and_no_chat_network",
                ],
            ),
            ("adapter-gjc/src/bridge/tests/answering.rs", &["a_token_of_one_session_is_nothing_in_another"]),
            ("adapter-gjc/src/bridge/tests/working.rs", &["a_call_goes_to_present_clients_and_not_to_returning_ones"]),
            ("adapter-gsv/tests/process/nodes.rs", &["only_the_queried_node_answers_and_late_results_are_dropped"]),
            ("adapter-gjc/tests/process/socket.rs", &["commands_of_the_agent_cannot_answer_for_the_host"]),
            (
                "countersign/tests/process/self_approval.rs",
                &["a_command_of_a_run_can_approve_nothing_and_a_person_over_the_same_port_can"],
            ),
            (
                "countersign/tests/security/network_egress.rs",
                &["a_command_that_may_reach_the_gateway_answers_nothing_there"],
            ),
        ],
    ),
    class(
        "policy that an agent gives itself",
        "CVE-2025-53773, CVE-2026-25725, CVE-2025-59536, CVE-2026-21852, CVE-2025-61260",
        &[
            (
                EVALUATE,
                &[
                    "a_repositorys_own_file_can_only_tighten",
                    "file_tools_never_write_what_is_protected_and_ask_for_devices",
                ],
            ),
            (
                "countersign/tests/process/self_approval.rs",
                &["a_command_of_a_run_can_approve_nothing_and_a_person_over_the_same_port_can"],
            ),
            (
                CHILDREN,
                &[
                    "a_child_of_an_agent_acts_at_no_route_whatever_it_shows",
                    "a_short_lived_child_of_an_agent_gets_nothing_over_the_control_socket",
                ],
            ),
            ("adapter-gjc/tests/process/unattended.rs", &["no_tool_writes_into_the_audit"]),
        ],
    ),
    class(
        "a mode that passes the gate by",
        "hermes#30882, hermes#60505",
        &[
            ("countersign/tests/security/run_modes.rs", &["mode_silently_skips_gate"]),
            (
                "adapter-omp/tests/process/gates.rs",
                &[
                    "whatever_is_not_clearly_allowed_does_not_run",
                    "deletions_beyond_the_folder_need_approval_without_any_rule",
                ],
            ),
            ("adapter-gjc/tests/process/unattended.rs", &["the_agent_is_held_to_it_too"]),
            ("adapter-gsv/tests/process/jobs.rs", &["what_a_job_asks_goes_to_a_person_and_without_one_is_refused"]),
            ("api/tests/process/routes.rs", &["no_token_lets_a_session_through_unasked"]),
        ],
    ),
    class(
        "links and paths that lead out",
        "CVE-2025-54794",
        &[
            (
                "tools/src/roots.rs",
                &[
                    "a_path_is_judged_by_where_it_leads",
                    "a_walk_is_shown_no_second_name_of_a_denied_file",
                    "the_state_of_processes_is_closed_even_where_everything_is_open",
                ],
            ),
            ("tools/src/disk.rs", &["a_link_put_there_after_the_decision_is_not_followed"]),
            ("adapter-gsv/tests/node/confinement.rs", &["files_stay_in_the_workspace_through_links_too"]),
            (
                "core/src/policy/evaluate/tests/spelled.rs",
                &[
                    "an_allow_covers_the_file_that_is_reached",
                    "a_denial_holds_for_the_file_however_it_is_spelled",
                    "a_link_is_judged_by_where_it_leads",
                    "a_step_up_behind_a_name_may_lead_out_through_a_link",
                ],
            ),
            ("countersign/tests/security/foreign_folders.rs", &["a_foreign_repository"]),
            ("adapter-gsv/tests/process/workspace.rs", &["what_leads_out_of_the_folder_is_refused"]),
            (
                "adapter-omp/tests/process/hostile_files.rs",
                &["an_id_that_is_a_path_makes_nothing_outside_the_agent_directory"],
            ),
        ],
    ),
    class(
        "servers of MCP in a configuration are commands",
        "OX Security, April 2026; CVE-2025-61260",
        &[(
            "countersign/tests/process/mcp_servers.rs",
            &[
                "a_server_is_started_once_its_gate_is_allowed_and_not_before",
                "a_denied_server_is_never_started_and_not_requested_again",
                "a_tool_that_changed_is_not_called_until_it_is_approved_again",
            ],
        )],
    ),
    class(
        "a budget that calls side by side exceed",
        "paperclip#11276",
        &[("core/tests/it/unattended/budgets.rs", &["twenty_calls_at_once_never_pass_the_limit"])],
    ),
];

#[test]
fn every_class_has_a_test_that_is_there_or_says_why_not() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut names = BTreeSet::new();
    for class in &CLASSES {
        assert!(names.insert(class.name), "{} stands twice", class.name);
        assert!(!class.record.is_empty(), "{}", class.name);
        assert!(!class.shown_by.is_empty() || !class.open.is_empty(), "{} has no test and no reason", class.name);
        for (file, tests) in class.shown_by {
            let text = fs::read_to_string(crates.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(!tests.is_empty(), "{}: {file}", class.name);
            for test in *tests {
                assert!(is_test(&text, test), "{}: {file} has no test {test}", class.name);
            }
        }
    }
}

/// Reports whether a file has a test of this name.
fn is_test(text: &str, name: &str) -> bool {
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
    // Its attributes stand between it and what is before.
    let attributes = before.rsplit("\n\n").next().unwrap_or(before);
    attributes.contains("#[test]") || attributes.contains("#[tokio::test")
}

#[test]
fn every_test_here_shows_a_class() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/security");
    let named: BTreeSet<&str> = CLASSES
        .iter()
        .flat_map(|class| class.shown_by)
        .filter(|(file, _)| file.starts_with("countersign/tests/security/"))
        .flat_map(|(_, tests)| tests.iter().copied())
        .collect();
    for file in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.ends_with("classes.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for rest in text.split("#[test]\nfn ").skip(1) {
            let name = rest.split('(').next().unwrap();
            assert!(named.contains(name), "{} shows no class: {name}", file.display());
        }
    }
}
