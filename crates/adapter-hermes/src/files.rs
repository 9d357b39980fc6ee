//! The files of a session's folder: listed and read, never written. Source: docs/protocol/hermes.md, Files.
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
    Door,
    fields::{self, Rejection},
    transcript::{self, Messages},
    webui::kind_of,
};

/// How many entries of a folder are listed.
const MOST_ENTRIES: usize = 2000;
/// How large a file may be that is shown as text, and that is sent as it is, in bytes.
const LARGEST_TEXT: u64 = 1 << 20;
const LARGEST: u64 = 32 << 20;

type Params = Query<BTreeMap<String, String>>;
type Outcome = Result<Response, Rejection>;

pub(super) fn routes(door: &Arc<Door>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("GET", "/api/list", list)
        .add_route("GET", "/api/file", text)
        .add_route("GET", "/api/file/raw", raw)
        .with_state(Arc::clone(door))
}

/// The real path of what a query names in its session's folder, and that folder.
async fn named(door: &Door, asked: &Params) -> Result<(PathBuf, PathBuf), Rejection> {
    let id = fields::session_in(asked)?;
    let session = transcript::session(&door.context.handle, &id, Messages::Without).await;
    let Some(session) = session.filter(|session| !session.workspace.is_empty()) else {
        return Err(Rejection::no_session());
    };
    let path = asked.get("path").cloned().unwrap_or_default();
    let found = tokio::task::spawn_blocking(move || resolve(Path::new(&session.workspace), &path)).await;
    found.ok().flatten().ok_or_else(|| Rejection::missing("path is not in the folder of this session"))
}

/// The real path of `named` in `folder`, and the folder's; `None` for what is not in it.
fn resolve(folder: &Path, named: &str) -> Option<(PathBuf, PathBuf)> {
    let path = Path::new(named);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_plain || named.contains('\0') {
        return None;
    }
    let root = folder.canonicalize().ok()?;
    let found = root.join(path).canonicalize().ok()?;
    found.starts_with(&root).then_some((root, found))
}

async fn list(State(door): State<Arc<Door>>, asked: Params) -> Outcome {
    let (root, folder) = named(&door, &asked).await?;
    let path = asked.get("path").filter(|path| !path.is_empty()).map_or(".", String::as_str).to_owned();
    let of = path.clone();
    let (base, read) = (root.clone(), move || entries(&root, &folder, &of));
    let Ok(Some(entries)) = tokio::task::spawn_blocking(read).await else {
        return Err(Rejection::missing("path is no folder"));
    };
    let signature = Digest::hash_bytes(Value::from(entries.clone()).to_string().as_bytes()).to_string();
    Ok(reply::ok(&json!({
        "entries": entries, "signature": signature, "path": path, "workspace": base, "workspace_recovered": false,
    })))
}

/// What is in a folder, folders first. `None` if it is none.
fn entries(root: &Path, folder: &Path, named: &str) -> Option<Vec<Value>> {
    let mut found: Vec<(bool, String, Value)> = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten().take(MOST_ENTRIES) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if named == "." { name.clone() } else { format!("{}/{name}", named.trim_end_matches('/')) };
        let Ok(own) = entry.metadata() else { continue };
        let is_link = own.file_type().is_symlink();
        let leads_out = is_link && !entry.path().canonicalize().is_ok_and(|target| target.starts_with(root));
        // Where a link leads that leads out is nobody's business here.
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
        let mut told = json!({
            "name": name, "path": path, "type": kind, "is_dir": is_folder,
            "mtime_ns": changed.map(|at| at.as_nanos().to_string()),
        });
        if leads_out {
            told["target_outside_workspace"] = true.into();
        } else if !is_folder {
            told["size"] = known.len().into();
        }
        found.push((!is_folder, name.to_lowercase(), told));
    }
    found.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    Some(found.into_iter().map(|(.., told)| told).collect())
}

/// The bytes of a file of at most `most` bytes.
async fn bytes(door: &Door, asked: &Params, most: u64) -> Result<(PathBuf, Vec<u8>), Rejection> {
    if asked.get("path").is_none_or(|path| path.trim().is_empty()) {
        return Err(Rejection::bad("path is required"));
    }
    let (_, file) = named(door, asked).await?;
    let read = move || {
        let known = fs::metadata(&file).ok().filter(fs::Metadata::is_file)?;
        let bytes = if known.len() > most { Err(known.len()) } else { Ok(fs::read(&file).ok()?) };
        Some((file, bytes))
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(Some((file, Ok(bytes)))) => Ok((file, bytes)),
        Ok(Some((_, Err(size)))) => {
            let why = format!("path is a file of {size} bytes, at most {most} are shown");
            Err(Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, why))
        }
        _ => Err(Rejection::missing("path is no file")),
    }
}

async fn text(State(door): State<Arc<Door>>, asked: Params) -> Outcome {
    let (_, bytes) = bytes(&door, &asked, LARGEST_TEXT).await?;
    let size = bytes.len();
    // What is no text is shown as far as it is one.
    let content = String::from_utf8_lossy(&bytes);
    let path = asked.get("path").cloned().unwrap_or_default();
    let lines = content.matches('\n').count() + 1;
    Ok(reply::ok(&json!({ "path": path, "content": content, "size": size, "lines": lines })))
}

async fn raw(State(door): State<Arc<Door>>, asked: Params) -> Outcome {
    let (file, bytes) = bytes(&door, &asked, LARGEST).await?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let wants_file = asked.get("download").is_some_and(|is| is == "1");
    // What an agent wrote must not run as a page of this gateway: only pictures are shown as they are.
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

    use super::{entries, resolve};

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
            assert_eq!(resolve(&root, named), None, "{named:?}");
        }
        for (named, want) in [("", ""), (".", ""), ("sub/a.txt", "sub/a.txt"), ("in/a.txt", "sub/a.txt")] {
            assert_eq!(
                resolve(&root, named),
                Some((root.clone(), root.join(want).canonicalize().unwrap())),
                "{named:?}"
            );
        }
        let listed = entries(&root, &root, ".").unwrap();
        let kinds: Vec<_> = listed
            .iter()
            .map(|one| format!("{} {}", one["path"].as_str().unwrap(), one["type"].as_str().unwrap()))
            .collect();
        assert_eq!(kinds, ["in dir", "sub dir", "out symlink"]);
        assert_eq!(entries(&root, &root.join("sub"), "sub").unwrap()[0]["path"], "sub/a.txt");
    }
}
