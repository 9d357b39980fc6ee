//! Checks of the values of an MCP server: names, addresses, variables and headers.
//!
//! It must not know the format of the file that they come from. No error repeats a value.

use url::Url;

/// Longest name of a server, in bytes.
const LONGEST_NAME: usize = 32;

/// Variables that decide which code a program runs at its start.
const LOADER_VARIABLES: [&str; 16] = [
    "BASHOPTS",
    "BASH_ENV",
    "ENV",
    "GCONV_PATH",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "NODE_OPTIONS",
    "PERL5DB",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "PS0",
    "PS4",
    "PYTHONSTARTUP",
    "RUBYOPT",
    "SHELLOPTS",
    "_JAVA_OPTIONS",
];

/// Prefixes of such variables, and of those of the gateway's own.
const LOADER_PREFIXES: [&str; 5] = ["LD_", "DYLD_", "GLIBC_", "BASH_FUNC_", "__countersign"];

/// Headers that the transport sets, in small letters.
const RESERVED_HEADERS: [&str; 16] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "last-event-id",
    "origin",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Prefixes of such headers.
const RESERVED_PREFIXES: [&str; 2] = ["mcp-", "proxy-"];

/// Reason why a value of an MCP server is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpValueError {
    /// Its tools could not be named after it.
    #[error(
        "invalid server name: expected 1 to 32 letters, digits, _ and -, without __ and without _ at the end, because its tools are called mcp__SERVER__TOOL"
    )]
    ServerName,
    /// The text cannot be passed to a program.
    #[error("expected text without line breaks and other control characters")]
    ControlCharacter,
    /// No variable of the environment has such a name.
    #[error("invalid variable name: expected letters, digits and _, with no digit at the start")]
    VariableName,
    /// The variable decides which code the server loads.
    #[error(
        "refused variable: it decides which code a program loads; set it in command and args, where approvers see it, for example with env"
    )]
    LoaderVariable,
    /// The value cannot be in an environment.
    #[error("the value of a variable must not contain a NUL character")]
    VariableValue,
    /// The address has no usable form.
    #[error("expected an address that starts with http:// or https://, with a host and without blanks")]
    Address,
    /// The address has a name or a password before its host.
    #[error("expected an address without a user and a password: write credentials into headers or auth")]
    AddressUser,
    /// The address has a fragment, which is never sent.
    #[error("expected an address without a fragment (#)")]
    AddressFragment,
    /// No header has such a name.
    #[error("invalid header name: expected letters, digits and -, such as X-Api-Key")]
    HeaderName,
    /// The transport sets the header itself.
    #[error(
        "refused header: the gateway sets the headers of the connection and of MCP itself; expected one of the server's own, such as Authorization"
    )]
    ReservedHeader,
    /// The value cannot be in a header.
    #[error("the value of a header must be printable ASCII text")]
    HeaderValue,
}

/// Checks the name of a server.
///
/// # Errors
/// [`McpValueError::ServerName`] for a name from which `mcp__SERVER__TOOL` cannot be made so that it can be taken apart again.
pub fn check_server_name(name: &str) -> Result<(), McpValueError> {
    let is_usual = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let is_apart = !name.contains("__") && !name.ends_with('_');
    if (1..=LONGEST_NAME).contains(&name.len()) && is_usual && is_apart {
        return Ok(());
    }
    Err(McpValueError::ServerName)
}

/// Checks a command, an argument or a path.
///
/// # Errors
/// [`McpValueError::ControlCharacter`] if it has one, NUL and line breaks included.
pub fn check_text(text: &str) -> Result<(), McpValueError> {
    if text.chars().any(char::is_control) { Err(McpValueError::ControlCharacter) } else { Ok(()) }
}

/// Checks the name of a variable for a server.
///
/// # Errors
/// [`McpValueError::VariableName`], and [`McpValueError::LoaderVariable`] for one that makes a program load other code.
pub fn check_variable_name(name: &str) -> Result<(), McpValueError> {
    let mut bytes = name.bytes();
    let is_name = bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name {
        return Err(McpValueError::VariableName);
    }
    if LOADER_VARIABLES.contains(&name) || LOADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Err(McpValueError::LoaderVariable);
    }
    Ok(())
}

/// Checks the value of a variable for a server.
///
/// # Errors
/// [`McpValueError::VariableValue`] if it contains NUL.
pub fn check_variable_value(value: &str) -> Result<(), McpValueError> {
    if value.contains('\0') { Err(McpValueError::VariableValue) } else { Ok(()) }
}

/// Checks the address of a server, or of the issuer of its tokens.
///
/// # Errors
/// One of the three reasons about addresses.
pub fn check_address(text: &str) -> Result<(), McpValueError> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    // Parsers disagree about the host of an address with a backslash, and of one with three slashes.
    let is_usual = rest.is_some_and(|rest| !rest.starts_with('/'))
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let address = Url::parse(text).ok().filter(|_| is_usual).ok_or(McpValueError::Address)?;
    let authority = rest.unwrap_or_default().split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(McpValueError::AddressUser);
    }
    // A variable that was not replaced is no host.
    if !authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte)) {
        return Err(McpValueError::Address);
    }
    if address.fragment().is_some() {
        return Err(McpValueError::AddressFragment);
    }
    Ok(())
}

/// Checks the name of a header of requests to a server.
///
/// # Errors
/// [`McpValueError::HeaderName`], and [`McpValueError::ReservedHeader`] for one that the transport sets.
pub fn check_header_name(name: &str) -> Result<(), McpValueError> {
    let is_token = |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err(McpValueError::HeaderName);
    }
    let lower = name.to_ascii_lowercase();
    let is_reserved =
        RESERVED_HEADERS.contains(&lower.as_str()) || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    if is_reserved { Err(McpValueError::ReservedHeader) } else { Ok(()) }
}

/// Checks the value of a header of requests to a server.
///
/// # Errors
/// [`McpValueError::HeaderValue`] if it has a character that is not printable ASCII.
pub fn check_header_value(value: &str) -> Result<(), McpValueError> {
    if value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) { Ok(()) } else { Err(McpValueError::HeaderValue) }
}

#[cfg(test)]
mod tests {
    use super::{
        McpValueError::{self, *},
        check_address, check_header_name, check_header_value, check_server_name, check_text, check_variable_name,
        check_variable_value,
    };

    type Check = fn(&str) -> Result<(), McpValueError>;

    #[test]
    fn a_value_is_refused_for_one_reason() {
        let long = "a".repeat(32);
        let too_long = "a".repeat(33);
        let (name, text, variable): (Check, Check, Check) = (check_server_name, check_text, check_variable_name);
        let (value, address): (Check, Check) = (check_variable_value, check_address);
        let (header, header_value): (Check, Check) = (check_header_name, check_header_value);
        for (check, given, want) in [
            (name, "a", Ok(())),
            (name, "Git-Hub_2", Ok(())),
            (name, "_a", Ok(())),
            (name, "-", Ok(())),
            (name, &long, Ok(())),
            (name, &too_long, Err(ServerName)),
            (name, "", Err(ServerName)),
            (name, "a__b", Err(ServerName)),
            (name, "a_", Err(ServerName)),
            (name, "a b", Err(ServerName)),
            (name, "a.b", Err(ServerName)),
            (name, "a/b", Err(ServerName)),
            (name, "ä", Err(ServerName)),
            (name, "a\n", Err(ServerName)),
            (name, "*", Err(ServerName)),
            (text, "/opt/My Tools/x", Ok(())),
            (text, "", Ok(())),
            (text, "a\0b", Err(ControlCharacter)),
            (text, "a\nb", Err(ControlCharacter)),
            (text, "\u{1b}[2J", Err(ControlCharacter)),
            (text, "a\u{85}b", Err(ControlCharacter)),
            (variable, "TOKEN", Ok(())),
            (variable, "_a1", Ok(())),
            (variable, "PATH", Ok(())),
            (variable, "", Err(VariableName)),
            (variable, "1A", Err(VariableName)),
            (variable, "A-B", Err(VariableName)),
            (variable, "A=B", Err(VariableName)),
            (variable, "Ä", Err(VariableName)),
            (variable, "A\0", Err(VariableName)),
            (variable, "LD_PRELOAD", Err(LoaderVariable)),
            (variable, "LD_LIBRARY_PATH", Err(LoaderVariable)),
            (variable, "DYLD_INSERT_LIBRARIES", Err(LoaderVariable)),
            (variable, "NODE_OPTIONS", Err(LoaderVariable)),
            (variable, "BASH_ENV", Err(LoaderVariable)),
            (variable, "__countersign_x", Err(LoaderVariable)),
            (value, "a\nb", Ok(())),
            (value, "", Ok(())),
            (value, "a\0", Err(VariableValue)),
            (address, "http://127.0.0.1:8080/mcp", Ok(())),
            (address, "https://h/mcp/?a=b@c", Ok(())),
            (address, "https://[::1]/", Ok(())),
            (address, "https://h/a@b", Ok(())),
            (address, "", Err(Address)),
            (address, "h/mcp", Err(Address)),
            (address, "ftp://h", Err(Address)),
            (address, "file:///etc/passwd", Err(Address)),
            (address, "http:h", Err(Address)),
            (address, "https://", Err(Address)),
            (address, "https:///h", Err(Address)),
            (address, "https://h\\@i/", Err(Address)),
            (address, "https://h:99999/", Err(Address)),
            (address, "https://[::1/", Err(Address)),
            (address, "https://a b/", Err(Address)),
            (address, "https://h/\n", Err(Address)),
            (address, "https://${HOST}/", Err(Address)),
            (address, "https://%61/", Err(Address)),
            (address, "https://u:p@h/", Err(AddressUser)),
            (address, "https://u@h/", Err(AddressUser)),
            (address, "https://@h/", Err(AddressUser)),
            (address, "https://h/#a", Err(AddressFragment)),
            (address, "https://h/#", Err(AddressFragment)),
            (header, "Authorization", Ok(())),
            (header, "X-Api-Key", Ok(())),
            (header, "", Err(HeaderName)),
            (header, "X Y", Err(HeaderName)),
            (header, "X:", Err(HeaderName)),
            (header, "X\r\nY", Err(HeaderName)),
            (header, "Ä", Err(HeaderName)),
            (header, "HOST", Err(ReservedHeader)),
            (header, "Content-Length", Err(ReservedHeader)),
            (header, "Transfer-Encoding", Err(ReservedHeader)),
            (header, "Connection", Err(ReservedHeader)),
            (header, "Mcp-Session-Id", Err(ReservedHeader)),
            (header, "MCP-Protocol-Version", Err(ReservedHeader)),
            (header, "Proxy-Authorization", Err(ReservedHeader)),
            (header_value, "Bearer abc~", Ok(())),
            (header_value, "a\r\nX: y", Err(HeaderValue)),
            (header_value, "ä", Err(HeaderValue)),
            (header_value, "\u{7f}", Err(HeaderValue)),
        ] {
            assert_eq!(check(given), want, "{given:?}");
        }
    }
}
