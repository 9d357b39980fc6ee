//! Files whose texts keep banned words, because clients of a protocol, stored records or models know the texts.

use std::path::{Path, PathBuf};

use crate::tidy::TidyFinding;

/// Files with the number of banned words in their wire texts. A number only falls.
const ALLOWED: &[(&str, usize)] = &[
    ("crates/adapter-gjc/src/audit.rs", 1),
    ("crates/adapter-gjc/src/unattended.rs", 1),
    ("crates/adapter-gsv/src/automation/notify.rs", 1),
    ("crates/adapter-gsv/src/builtin_tools/list_files.rs", 1),
    ("crates/adapter-gsv/src/builtin_tools/message.rs", 2),
    ("crates/adapter-gsv/src/builtin_tools/send_file.rs", 2),
    ("crates/adapter-gsv/src/builtin_tools/session_send.rs", 1),
    ("crates/adapter-gsv/src/channels/pairing.rs", 1),
    ("crates/adapter-gsv/src/channels/transport.rs", 1),
    ("crates/adapter-gsv/src/chat/answering.rs", 4),
    ("crates/adapter-gsv/src/chat/chat_card.rs", 2),
    ("crates/adapter-gsv/src/delivery.rs", 1),
    ("crates/adapter-gsv/src/settings.rs", 1),
    ("crates/adapter-gsv/src/workspace/folder.rs", 1),
    ("crates/adapter-hermes/src/prompts/follower.rs", 1),
    ("crates/adapter-omp/src/adapter/gate_dialogs.rs", 1),
    ("crates/adapter-omp/src/handoff.rs", 2),
    ("crates/adapter-omp/src/open_session_error.rs", 1),
    ("crates/adapter-omp/src/session_file/writer.rs", 1),
    ("crates/adapter-omp/src/session_file_writer.rs", 2),
    ("crates/conversations/src/prompt.rs", 1),
    ("crates/core/src/decision/texts.rs", 2),
    ("crates/core/src/engine/decide/contract.rs", 1),
    ("crates/core/src/engine/decide/settings.rs", 1),
    ("crates/core/src/gate/sign_off.rs", 1),
    ("crates/core/src/policy/evaluate/possible_denials.rs", 2),
    ("crates/core/src/policy/verdict.rs", 1),
    ("crates/core/src/schedule/time_phrase.rs", 1),
    ("crates/core/src/settle/ask_questions/answer_result.rs", 3),
    ("crates/core/src/settle/gate_settles.rs", 1),
    ("crates/countersign/src/attach.rs", 1),
    ("crates/http/src/web/guard.rs", 2),
    ("crates/protocol/src/gjc/bridge.rs", 1),
    ("crates/protocol/src/gsv/command.rs", 2),
    ("crates/protocol/src/omp/command.rs", 1),
    ("crates/protocol/src/omp/command/later.rs", 1),
    ("crates/runtime/src/work/live_questions.rs", 3),
    ("crates/runtime/src/work/peer.rs", 1),
    ("crates/shell-analysis/src/delete.rs", 1),
    ("crates/shell-analysis/src/files/wrappers.rs", 1),
    ("crates/shell-analysis/src/find.rs", 1),
    ("crates/shell-analysis/src/protect.rs", 1),
    ("crates/telegram/src/telegram_card.rs", 3),
];

/// Returns how many banned words the texts of `file` may have.
pub(super) fn allowed(file: &Path) -> usize {
    ALLOWED.iter().find(|(allowed, _)| file == Path::new(allowed)).map_or(0, |(_, uses)| *uses)
}

/// Finds the files in the list that no longer exist.
pub(super) fn missing_files(root: &Path) -> Vec<TidyFinding> {
    let missing = ALLOWED.iter().filter(|(file, _)| !root.join(file).exists());
    let finding = |(file, _): &(&str, usize)| TidyFinding {
        file: PathBuf::from("xtask/src/tidy/banned_words/wire_texts.rs"),
        line: 1,
        what: format!("{file} is listed, and there is no such file"),
        why: "the list only shrinks: take it out",
    };
    missing.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_listed_once_in_order_with_at_least_one_word() {
        assert!(ALLOWED.is_sorted_by(|(before, _), (after, _)| before < after));
        assert!(ALLOWED.iter().all(|(_, uses)| *uses > 0));
    }
}
