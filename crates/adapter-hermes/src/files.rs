//! Files of a session's folder: listed and read, never written. Source: docs/protocol/hermes.md, Files.
//!
//! Links that lead out of the folder are shown and not followed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

use axum::{
    Router,
    extract::{Query, State},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use countersign_core::digest::Digest;
use countersign_http::{reply, web::GuardedRoutes};
use serde_json::{Value, json};

use super::{
    HermesAdapter,
    fields::{self, RequestRejection},
    transcript::{self, MessageSelection},
    webui::kind_of,
};

/// Most entries of a folder that are listed.
const MOST_ENTRIES: usize = 2000;
/// Largest file that is shown as text, and that is sent as it is, in bytes.
const LARGEST_TEXT: u64 = 1 << 20;
const LARGEST: u64 = 32 << 20;

type FileParams = Query<BTreeMap<String, String>>;
type FileResult = Result<Response, RequestRejection>;

pub(super) fn routes(door: &Arc<HermesAdapter>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("GET", "/api/list", list_folder)
        .add_route("GET", "/api/file", send_text)
        .add_route("GET", "/api/file/raw", send_raw)
        .with_state(Arc::clone(door))
}

/// Returns the real path that a query names in its session's folder, and that folder.
async fn requested_path(door: &HermesAdapter, params: &FileParams) -> Result<(PathBuf, PathBuf), RequestRejection> {
    let id = fields::session_in(params)?;
    let session = transcript::load_session(&door.context.handle, &id, MessageSelection::Without).await;
    let Some(session) = session.filter(|session| !session.workspace.is_empty()) else {
        return Err(RequestRejection::no_session());
    };
    let path = params.get("path").cloned().unwrap_or_default();
    let found = tokio::task::spawn_blocking(move || resolve_path(Path::new(&session.workspace), &path)).await;
    found.ok().flatten().ok_or_else(|| RequestRejection::missing("path is not in the folder of this session"))
}

/// Returns the real path of `named` in `folder`, and the folder's; `None` if it is outside.
fn resolve_path(folder: &Path, named: &str) -> Option<(PathBuf, PathBuf)> {
    let path = Path::new(named);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_plain || named.contains('\0') {
        return None;
    }
    let root = folder.canonicalize().ok()?;
    let found = root.join(path).canonicalize().ok()?;
    found.starts_with(&root).then_some((root, found))
}

async fn list_folder(State(door): State<Arc<HermesAdapter>>, params: FileParams) -> FileResult {
    let (root, folder) = requested_path(&door, &params).await?;
    let path = params.get("path").filter(|path| !path.is_empty()).map_or(".", String::as_str).to_owned();
    let of = path.clone();
    let (base, read) = (root.clone(), move || folder_entries(&root, &folder, &of));
    let Ok(Some(entries)) = tokio::task::spawn_blocking(read).await else {
        return Err(RequestRejection::missing("path is no folder"));
    };
    let signature = Digest::hash_bytes(Value::from(entries.clone()).to_string().as_bytes()).to_string();
    Ok(reply::ok(&json!({
        "entries": entries, "signature": signature, "path": path, "workspace": base, "workspace_recovered": false,
    })))
}

/// Lists a folder, folders first. `None` if it is none.
fn folder_entries(root: &Path, folder: &Path, named: &str) -> Option<Vec<Value>> {
    let mut found: Vec<(bool, String, Value)> = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten().take(MOST_ENTRIES) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if named == "." { name.clone() } else { format!("{}/{name}", named.trim_end_matches('/')) };
        let Ok(own) = entry.metadata() else { continue };
        let is_link = own.file_type().is_symlink();
        let leads_out = is_link && !entry.path().canonicalize().is_ok_and(|target| target.starts_with(root));
        // The target of a link that leads out is not shown here.
        let known = if leads_out { Some(own) } else { fs::metadata(entry.path()).ok() };
        let Some(known) = known else { continue };
        let is_folder = known.is_dir() && !leads_out;
        let changed = known.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let kind = if leads_out {
            "symlink"
        } else if is_folder {
            "dir"
        } else {
            "file"
        };
        let mut row = json!({
            "name": name, "path": path, "type": kind, "is_dir": is_folder,
            "mtime_ns": changed.map(|at| at.as_nanos().to_string()),
        });
        if leads_out {
            row["target_outside_workspace"] = true.into();
        } else if !is_folder {
            row["size"] = known.len().into();
        }
        found.push((!is_folder, name.to_lowercase(), row));
    }
    found.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    Some(found.into_iter().map(|(.., row)| row).collect())
}

/// Reads a file of at most `most` bytes.
async fn read_bytes(
    door: &HermesAdapter,
    params: &FileParams,
    most: u64,
) -> Result<(PathBuf, Vec<u8>), RequestRejection> {
    if params.get("path").is_none_or(|path| path.trim().is_empty()) {
        return Err(RequestRejection::bad("path is required"));
    }
    let (_, file) = requested_path(door, params).await?;
    let read = move || {
        let known = fs::metadata(&file).ok().filter(fs::Metadata::is_file)?;
        let bytes = if known.len() > most { Err(known.len()) } else { Ok(fs::read(&file).ok()?) };
        Some((file, bytes))
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(Some((file, Ok(bytes)))) => Ok((file, bytes)),
        Ok(Some((_, Err(size)))) => {
            let why = format!("path is a file of {size} bytes, at most {most} are shown");
            Err(RequestRejection::new(StatusCode::PAYLOAD_TOO_LARGE, why))
        }
        _ => Err(RequestRejection::missing("path is no file")),
    }
}

async fn send_text(State(door): State<Arc<HermesAdapter>>, params: FileParams) -> FileResult {
    let (_, bytes) = read_bytes(&door, &params, LARGEST_TEXT).await?;
    let size = bytes.len();
    // A file with other bytes than text is shown as far as it is text.
    let content = String::from_utf8_lossy(&bytes);
    let path = params.get("path").cloned().unwrap_or_default();
    let lines = content.matches('\n').count() + 1;
    Ok(reply::ok(&json!({ "path": path, "content": content, "size": size, "lines": lines })))
}

async fn send_raw(State(door): State<Arc<HermesAdapter>>, params: FileParams) -> FileResult {
    let (file, bytes) = read_bytes(&door, &params, LARGEST).await?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let wants_file = params.get("download").is_some_and(|is| is == "1");
    // A file of an agent must not run as a page of this gateway: only pictures are shown as they are.
    let kind = Some(kind_of(&name)).filter(|kind| kind.starts_with("image/") && !kind.contains("svg"));
    let mut response = reply::with_content_type(StatusCode::OK, kind.unwrap_or("application/octet-stream"), bytes);
    let name: String =
        name.chars().map(|sign| if sign.is_ascii_graphic() && sign != '"' { sign } else { '-' }).collect();
    if (wants_file || kind.is_none())
        && let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""))
    {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::{folder_entries, resolve_path};

    #[test]
    fn nothing_outside_of_the_folder_is_named_listed_or_followed() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = folder.path().canonicalize().unwrap();
        fs::write(other.path().join("secret"), "x").unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        fs::write(root.join("sub/a.txt"), "a").unwrap();
        symlink(other.path(), root.join("out")).unwrap();
        symlink(root.join("sub"), root.join("in")).unwrap();
        for named in ["..", "../x", "/etc/passwd", "out", "out/secret", "sub/../../x", "gone", "a\0b"] {
            assert_eq!(resolve_path(&root, named), None, "{named:?}");
        }
        for (named, want) in [("", ""), (".", ""), ("sub/a.txt", "sub/a.txt"), ("in/a.txt", "sub/a.txt")] {
            assert_eq!(
                resolve_path(&root, named),
                Some((root.clone(), root.join(want).canonicalize().unwrap())),
                "{named:?}"
            );
        }
        let listed = folder_entries(&root, &root, ".").unwrap();
        let kinds: Vec<_> = listed
            .iter()
            .map(|one| format!("{} {}", one["path"].as_str().unwrap(), one["type"].as_str().unwrap()))
            .collect();
        assert_eq!(kinds, ["in dir", "sub dir", "out symlink"]);
        assert_eq!(folder_entries(&root, &root.join("sub"), "sub").unwrap()[0]["path"], "sub/a.txt");
    }
}
