//! The list of tools, in pages.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_config::UndeclaredArguments;
use countersign_policy_admin::service_tools::{ServiceTool, ServiceTools};
use parking_lot::Mutex;
use rmcp::model::Tool;
use serde_json::{Map, Value, json};

use crate::{
    further_tools::{FurtherTool, FurtherTools},
    own_tools::OwnTool,
};

/// Most tools in one answer.
const PAGE: usize = 1_000;

/// Tools of the adapter, of services, and further ones. The first of one name counts.
pub(super) struct ToolList {
    fixed: Vec<Tool>,
    further: Option<Arc<dyn FurtherTools>>,
    known: Mutex<Option<(u64, Arc<AllTools>)>>,
}

/// All tools at one time.
#[derive(Default)]
pub(super) struct AllTools {
    listed: Vec<Tool>,
    by_name: BTreeMap<String, usize>,
    further: BTreeMap<String, FurtherTool>,
}

impl ToolList {
    pub(super) fn new(listed: &[String], tools: &ServiceTools, further: Option<Arc<dyn FurtherTools>>) -> Self {
        let of_services = listed.iter().filter_map(|name| Some((name, tools.get(name)?)));
        let of_services = of_services.map(|(name, tool)| service_tool(name, tool));
        let fixed = OwnTool::ALL.into_iter().map(OwnTool::definition).chain(of_services).collect();
        Self { fixed, further, known: Mutex::default() }
    }

    /// Returns all tools as they are now.
    pub(super) fn current(&self) -> Arc<AllTools> {
        let version = self.further.as_ref().map_or(0, |further| *further.changed().borrow());
        let mut known = self.known.lock();
        if let Some((of, all)) = &*known
            && *of == version
        {
            return Arc::clone(all);
        }
        let further = self.further.as_ref().map(|further| further.tools()).unwrap_or_default();
        let all = Arc::new(AllTools::new(&self.fixed, further));
        *known = Some((version, Arc::clone(&all)));
        all
    }
}

impl AllTools {
    fn new(fixed: &[Tool], further: Vec<FurtherTool>) -> Self {
        let mut all = Self::default();
        let mut names = BTreeSet::new();
        for tool in fixed {
            if names.insert(tool.name.to_string()) {
                all.listed.push(tool.clone());
            }
        }
        for tool in further {
            if names.insert(tool.name.clone()) {
                all.listed.push(Tool::new(tool.name.clone(), tool.description.clone(), tool.schema.clone()));
                all.further.insert(tool.name.clone(), tool);
            }
        }
        all.by_name = all.listed.iter().enumerate().map(|(at, tool)| (tool.name.to_string(), at)).collect();
        all
    }

    /// Returns the tool with a name.
    pub(super) fn find(&self, name: &str) -> Option<&Tool> {
        self.by_name.get(name).and_then(|at| self.listed.get(*at))
    }

    /// Returns the further tool with a name.
    pub(super) fn find_further(&self, name: &str) -> Option<&FurtherTool> {
        self.further.get(name)
    }

    /// Returns the page at a cursor, and the cursor of the next one. `None` for a cursor that no page had.
    pub(super) fn page(&self, cursor: Option<&str>) -> Option<(Vec<Tool>, Option<String>)> {
        let first = match cursor {
            None => 0,
            Some(cursor) => {
                let is_ours = |first: &usize| first.is_multiple_of(PAGE) && *first > 0 && first.to_string() == cursor;
                cursor.parse().ok().filter(is_ours)?
            }
        };
        // The list may have become shorter since.
        let rest = self.listed.get(first..).unwrap_or_default();
        let next = (rest.len() > PAGE).then(|| (first + PAGE).to_string());
        Some((rest.iter().take(PAGE).cloned().collect(), next))
    }
}

fn service_tool(name: &str, tool: &ServiceTool) -> Tool {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for argument in &tool.args {
        // Services take any JSON value; texts in it must match.
        let mut schema = Map::new();
        if let Some(validate) = &argument.validate {
            let text = format!("Texts must match {} from their beginning", validate.source());
            schema.insert("description".to_owned(), text.into());
        }
        properties.insert(argument.name.clone(), Value::Object(schema));
        if argument.required {
            required.push(argument.name.as_str());
        }
    }
    let mut schema =
        Map::from_iter([("type".to_owned(), json!("object")), ("properties".to_owned(), Value::Object(properties))]);
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    if tool.undeclared == UndeclaredArguments::Refuse {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
    Tool::new(name.to_owned(), tool.description.clone(), schema)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, Instant},
    };

    use serde_json::Map;
    use tokio::sync::watch;

    use super::{FurtherTool, FurtherTools, PAGE, ToolList};
    use crate::own_tools::OwnTool;

    struct ManyTools(watch::Sender<u64>);

    impl FurtherTools for ManyTools {
        fn tools(&self) -> Vec<FurtherTool> {
            let count = *self.0.borrow();
            let tool = |number| FurtherTool {
                name: format!("mcp__x__{number}"),
                description: "x".repeat(200),
                schema: Map::new(),
                service: "x".into(),
            };
            (0..count)
                .map(tool)
                .chain([FurtherTool { name: OwnTool::GateWait.name().to_owned(), ..tool(count) }])
                .collect()
        }

        fn changed(&self) -> watch::Receiver<u64> {
            self.0.subscribe()
        }
    }

    #[test]
    fn all_tools_are_listed_once_in_pages_that_are_quick() {
        let many = Arc::new(ManyTools(watch::Sender::new(2_500)));
        let list = ToolList::new(&[], &std::collections::BTreeMap::new(), Some(many.clone()));
        let all = list.current();
        let (mut names, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let begun = Instant::now();
            let (page, next) = all.page(cursor.as_deref()).unwrap();
            assert!(begun.elapsed() < Duration::from_millis(20) && page.len() <= PAGE);
            names.extend(page.into_iter().map(|tool| tool.name.to_string()));
            pages += 1;
            if next.is_none() {
                break;
            }
            cursor = next;
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!((pages, count, names.len()), (3, 2_500 + OwnTool::ALL.len(), count));
        assert!(["x", "-1", "7", "0", "+1000", "01000"].iter().all(|cursor| all.page(Some(cursor)).is_none()));
        assert!(all.find_further("gate_wait").is_none(), "a tool of our own keeps its name");
        many.0.send_replace(1);
        assert!(list.current().find("mcp__x__2").is_none());
    }
}
