//! Places to which messages go: a chat, or a topic of a forum in it.

use std::{fmt, str::FromStr};

/// What follows the chat in the text form of a topic.
const TOPIC: &str = ":topic:";

/// A chat, or a topic in it. Its text form is `CHAT`, or `CHAT:topic:NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatPlace {
    /// Id of the chat.
    pub chat: i64,
    /// Number of the topic. None in a chat without topics, and in the General of a forum.
    pub topic: Option<i64>,
}

/// A text that names no chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no chat of Telegram")]
pub struct UnknownPlace;

impl ChatPlace {
    /// Returns the chat without its topic.
    #[must_use]
    pub const fn whole_chat(self) -> Self {
        Self { topic: None, ..self }
    }
}

impl fmt::Display for ChatPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.topic {
            Some(topic) => write!(f, "{}{TOPIC}{topic}", self.chat),
            None => write!(f, "{}", self.chat),
        }
    }
}

impl FromStr for ChatPlace {
    type Err = UnknownPlace;

    fn from_str(text: &str) -> Result<Self, UnknownPlace> {
        let (chat, topic) = text.split_once(TOPIC).map_or((text, None), |(chat, topic)| (chat, Some(topic)));
        let topic = topic.map(str::parse).transpose().map_err(|_| UnknownPlace)?;
        Ok(Self {
            chat: chat.parse().map_err(|_| UnknownPlace)?,
            topic: topic.filter(|topic| *topic != super::GENERAL),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ChatPlace, UnknownPlace};

    #[test]
    fn a_place_is_read_as_it_is_written_and_general_is_the_chat() {
        for (text, chat, topic) in [("7", 7, None), ("-100500", -100_500, None), ("-100500:topic:9", -100_500, Some(9))]
        {
            let place = ChatPlace { chat, topic };
            assert_eq!((text.parse(), place.to_string()), (Ok(place), text.to_owned()));
        }
        assert_eq!("-5:topic:1".parse(), Ok(ChatPlace { chat: -5, topic: None }));
        for text in ["", "club", "-5:topic:", "-5:topic:x", "-5:9", "-5:topic:9:9"] {
            assert_eq!(text.parse::<ChatPlace>(), Err(UnknownPlace), "{text}");
        }
    }
}
