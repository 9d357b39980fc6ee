//! Front end of the user: its pages with values of this gateway in them, its files as they are. Source: docs/protocol/hermes.md,
//! Front end.

use std::{
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use axum::{
    Extension, Router,
    extract::{Path as Named, State},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use countersign_http::{
    reply::{self, HttpProblem},
    web::{GuardedRoutes, HttpCaller},
};

use super::HermesAdapter;

/// Largest file that is served, in bytes.
const LARGEST: u64 = 32 << 20;
/// Largest upload that the pages allow, in bytes.
const UPLOAD: usize = 4 << 20;
/// Content security policy. The pages contain scripts; the important part stays: no other site can frame them.
const POLICY: &str = "object-src 'none'; base-uri 'self'; frame-ancestors 'none'";

/// Styles that hide the controls of missing features.
const ABSENT: &str = include_str!("webui/absent.html");

#[derive(Clone)]
struct FrontEnd {
    folder: Arc<PathBuf>,
    door: Arc<HermesAdapter>,
}

/// Finds the front end's files in `folder`: a checkout of the project has them in a subfolder.
///
/// # Errors
/// The missing file, as text for users.
pub fn find_front_end(folder: &Path) -> Result<PathBuf, String> {
    let found = [folder.join("static"), folder.to_owned()].into_iter().find(|one| one.join("index.html").is_file());
    found.ok_or_else(|| format!("--webui {}: the folder has no index.html", folder.display()))
}

pub(super) fn routes(door: &Arc<HermesAdapter>, folder: PathBuf) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("GET", "/", index)
        .add_route("GET", "/index.html", index)
        .add_route("GET", "/session/{id}", index)
        .add_route("GET", "/static/{*path}", static_file)
        .add_route("GET", "/session/static/{*path}", static_file)
        .add_route("GET", "/sw.js", service_worker)
        .add_route("GET", "/manifest.json", web_manifest)
        .add_route("GET", "/favicon.ico", send_favicon)
        .with_state(FrontEnd { folder: Arc::new(folder), door: Arc::clone(door) })
}

async fn index(State(front): State<FrontEnd>, caller: Option<Extension<HttpCaller>>) -> Response {
    let csrf = caller.map(|Extension(caller)| caller.csrf_token().to_owned()).unwrap_or_default();
    front.filled_page("index.html", "text/html; charset=utf-8", &csrf).await
}

/// Returns the version of the process: a service worker keeps nothing of an earlier one.
pub(super) fn webui_version(door: &HermesAdapter) -> String {
    format!("{}-{:x}", env!("CARGO_PKG_VERSION"), door.context.started_at.0)
}

/// Returns the page with styles that hide the controls of missing features that no setting hides. Its files stay as they are.
fn without_absent(page: &str) -> String {
    match page.rfind("</body>") {
        Some(end) => format!("{}{ABSENT}{}", &page[..end], &page[end..]),
        None => format!("{page}{ABSENT}"),
    }
}

async fn service_worker(State(front): State<FrontEnd>) -> Response {
    front.filled_page("sw.js", "text/javascript; charset=utf-8", "").await
}

async fn web_manifest(State(front): State<FrontEnd>) -> Response {
    front.plain_file("manifest.json").await
}

async fn send_favicon(State(front): State<FrontEnd>) -> Response {
    front.plain_file("favicon.ico").await
}

async fn static_file(State(front): State<FrontEnd>, Named(path): Named<String>) -> Response {
    // A copy laid out as it is served has them in a folder next to its pages.
    match front.read_file(&format!("static/{path}")).await {
        Some(bytes) => file_response(&path, bytes),
        None => front.plain_file(&path).await,
    }
}

impl FrontEnd {
    /// Returns a file with values in place of its placeholders.
    async fn filled_page(&self, name: &str, kind: &'static str, csrf: &str) -> Response {
        let Some(bytes) = self.read_file(name).await else { return file_not_found() };
        let Ok(text) = String::from_utf8(bytes) else { return file_not_found() };
        let token = serde_json::to_string(csrf).unwrap_or_else(|_| "\"\"".to_owned());
        let text = text
            .replace("__WEBUI_VERSION__", &webui_version(&self.door))
            .replace("__MAX_UPLOAD_BYTES__", &UPLOAD.to_string())
            .replace("__CSRF_TOKEN_JSON__", &token);
        let text = if name.ends_with(".html") { without_absent(&text) } else { text };
        let mut response = reply::with_content_type(StatusCode::OK, kind, text.into_bytes());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert("service-worker-allowed", HeaderValue::from_static("/"));
        response
    }

    async fn plain_file(&self, name: &str) -> Response {
        self.read_file(name).await.map_or_else(file_not_found, |bytes| file_response(name, bytes))
    }

    /// Reads a file in the folder; links do not lead out of it.
    async fn read_file(&self, name: &str) -> Option<Vec<u8>> {
        let path = Path::new(name);
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_))) && !name.contains('\0');
        let requested = self.folder.join(path);
        let folder = Arc::clone(&self.folder);
        let reading = tokio::task::spawn_blocking(move || {
            let (root, found) = (folder.canonicalize().ok()?, requested.canonicalize().ok()?);
            let known = found.metadata().ok()?;
            let may = found.starts_with(&root) && known.is_file() && known.len() <= LARGEST;
            may.then(|| std::fs::read(&found).ok()).flatten()
        });
        if is_plain { reading.await.ok().flatten() } else { None }
    }
}

/// Returns the response for a file as it is.
fn file_response(name: &str, bytes: Vec<u8>) -> Response {
    let mut response = reply::with_content_type(StatusCode::OK, kind_of(name), bytes);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn file_not_found() -> Response {
    HttpProblem::new(StatusCode::NOT_FOUND, "not found").response_for("/static/")
}

/// Returns the content type of a file, by its name.
pub(super) fn kind_of(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase()).as_deref() {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map" | "webmanifest") => "application/json; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("woff") => "font/woff",
        Some("ttf") => "font/ttf",
        Some("wasm") => "application/wasm",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
