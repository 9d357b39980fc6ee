//! Methods of channels.

use super::*;

#[test]
fn an_attachment_may_have_25_mb() {
    let inbound = |bytes: usize| {
        let data = "A".repeat(bytes / 3 * 4 + 4);
        let text = format!(
            r#"{{"channel":"c","accountId":"a","peer":{{"kind":"dm","id":"7"}},"message":{{"media":[{{"type":"image","mimeType":"image/png","data":"{data}"}}]}}}}"#
        );
        GsvRequest::from_params(Method::ChannelInbound, Some(&RawJson::parse(text).unwrap()))
    };
    assert!(inbound((25 << 20) - 3).is_ok());
    let refused = inbound(25 << 20).unwrap_err();
    assert_eq!(refused.message, "message.media[0] has 26214402 bytes, at most 26214400 are taken");
}
