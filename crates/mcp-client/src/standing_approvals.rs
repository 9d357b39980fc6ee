//! Standing approvals of the tools of servers: which of them may cover a tool or a server, and which were given for an earlier form.
//!
//! It must not revoke one: it compares.

use countersign_core::{
    call::CallDetails,
    policy::{Grant, GrantCoverage},
    time::Millis,
};

use crate::{approvals::ApprovalTimes, reading_tools::is_reading_tool};

/// Returns the pattern that a standing approval covers, or the signature of the call that was shown for an exact one.
pub fn grant_text(grant: &Grant) -> &str {
    match &grant.covers {
        GrantCoverage::Pattern(pattern) => pattern,
        GrantCoverage::Exact(_) => &grant.label,
    }
}

/// Reports whether a standing approval with this pattern or signature can cover calls of the tool that is called `name`.
pub fn may_cover_tool(covered: &str, name: &str) -> bool {
    let tool = covered.split_once('(').map_or(covered, |(tool, _)| tool);
    match tool.find(['*', '?', '[']) {
        Some(end) => name.starts_with(&tool[..end]),
        None => tool == name,
    }
}

/// Reports whether a standing approval with this pattern or signature can cover calls of a server. One that does not name the server
/// which it reads from can.
pub fn may_cover_server(covered: &str, server: &str) -> bool {
    let (tool, arguments) = covered.split_once('(').map_or((covered, None), |(tool, rest)| (tool, Some(rest)));
    if !is_reading_tool(tool) {
        return is_tool_of(covered, server);
    }
    arguments.is_none_or(|arguments| {
        let end = arguments.find([',', ')']).unwrap_or(arguments.len());
        let named = &arguments[..end];
        named == server || named.contains(['*', '?', '['])
    })
}

/// Reports whether a call reaches a server with one of its tools, or with one that reads its resources or prompts.
pub fn is_call_of(call: &CallDetails, server: &str) -> bool {
    if is_reading_tool(&call.tool) {
        return call.arguments.get("server").and_then(|name| name.as_str()) == Some(server);
    }
    is_tool_of(&call.tool, server)
}

/// Reports whether a name begins like those of the tools of a server.
fn is_tool_of(name: &str, server: &str) -> bool {
    let rest = name.strip_prefix("mcp__").and_then(|rest| rest.strip_prefix(server));
    rest.is_some_and(|rest| rest.starts_with("__"))
}

impl ApprovalTimes {
    /// Reports whether a standing approval may cover a server or a tool that was approved as it is now only after it was given.
    pub fn is_outdated_grant(&self, grant: &Grant) -> bool {
        // Without a time it may be older than anything.
        let (covered, given) = (grant_text(grant), grant.id.given_at().unwrap_or_default());
        let is_earlier = |since: &Millis| given <= *since;
        self.servers.iter().any(|(server, since)| is_earlier(since) && may_cover_server(covered, server))
            || self.tools.iter().any(|(tool, since)| is_earlier(since) && may_cover_tool(covered, tool))
    }

    /// Reports whether a call was shown at `shown` for a server or a tool that was approved as it is now only after that.
    pub fn is_outdated_call(&self, call: &CallDetails, shown: Millis) -> bool {
        self.servers.iter().any(|(server, since)| shown <= *since && is_call_of(call, server))
            || self.tools.get(&*call.tool).is_some_and(|since| shown <= *since)
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        digest::Digest,
        id::{IdGenerator, PrincipalId},
        policy::{Grant, GrantAuth, GrantCoverage, GrantId, GrantReach},
        time::Millis,
    };
    use uuid::Uuid;

    use super::{may_cover_server, may_cover_tool};
    use crate::approvals::ApprovalTimes;

    #[test]
    fn a_standing_approval_goes_with_every_changed_tool_that_it_may_cover() {
        for (covered, want) in [
            ("mcp__files__write", true),
            ("mcp__files__write(*)", true),
            ("mcp__files__write({\"path\":\"a\"})", true),
            ("mcp__files__*", true),
            ("mcp__f*", true),
            ("*", true),
            ("mcp__files__write_all", false),
            ("mcp__files__writ", false),
            ("mcp__file__*", false),
            ("bash(mcp__files__write)", false),
        ] {
            assert_eq!(may_cover_tool(covered, "mcp__files__write"), want, "{covered}");
        }
    }

    #[test]
    fn a_standing_approval_goes_with_every_server_that_it_may_cover() {
        for (covered, of_files, of_file) in [
            ("mcp__files__write_file(*)", true, false),
            ("mcp__files__write_file", true, false),
            ("mcp__file__read(*)", false, true),
            ("mcp_read_resource(files, note://all)", true, false),
            ("mcp_list_prompts(file)", false, true),
            ("mcp_read_resource(files, *)", true, false),
            ("mcp_read_resource(*)", true, true),
            ("mcp_read_resource", true, true),
            ("bash(mcp__files__x)", false, false),
        ] {
            let covers = (may_cover_server(covered, "files"), may_cover_server(covered, "file"));
            assert_eq!(covers, (of_files, of_file), "{covered}");
        }
    }

    fn grant(id: Uuid, covers: GrantCoverage) -> Grant {
        Grant {
            id: GrantId::new(id),
            by: PrincipalId::new("host"),
            to: PrincipalId::new("agent"),
            scope: GrantReach::Always,
            covers,
            label: "mcp__files__write(a)".to_owned(),
            until: None,
            door: GrantAuth::Open,
        }
    }

    #[test]
    fn a_standing_approval_is_outdated_by_a_later_form_of_what_it_may_cover() {
        let times = ApprovalTimes {
            servers: [("files".to_owned(), Millis(10))].into(),
            tools: [("mcp__files__write", 20), ("mcp__files__read", 10)]
                .map(|(tool, since)| (tool.to_owned(), Millis(since)))
                .into(),
        };
        let pattern = |text: &str| GrantCoverage::Pattern(text.to_owned());
        for (covers, outdated_until) in [
            (GrantCoverage::Exact(Digest::hash_bytes(b"")), 20),
            (pattern("mcp__files__write(*)"), 20),
            (pattern("mcp__files__*"), 20),
            (pattern("mcp__files__read(*)"), 10),
            (pattern("mcp_read_resource(files, *)"), 10),
            (pattern("mcp_read_resource(other, *)"), 0),
            (pattern("bash(ls)"), 0),
        ] {
            for given in [5, 10, 15, 20, 25] {
                let id = IdGenerator::new([1; 16]).next_uuid(Millis(given));
                let outdated = times.is_outdated_grant(&grant(id, covers.clone()));
                assert_eq!(outdated, given <= outdated_until, "{covers:?} of {given}");
            }
            let without_time = grant(Uuid::from_u128(1), covers.clone());
            assert_eq!(times.is_outdated_grant(&without_time), outdated_until > 0, "{covers:?} without a time");
        }
    }
}
