//! Query parameters: unknown ones are refused.

use super::ApiError;

/// Parameters of one request.
pub(super) struct QueryParams(Vec<(String, String)>);

impl QueryParams {
    /// Parses them. `known` are those of the route.
    ///
    /// # Errors
    /// A parameter that the route does not have.
    pub(super) fn from_query(query: Option<&str>, known: &[&str]) -> Result<Self, ApiError> {
        let pairs = serde_urlencoded::from_str::<Vec<(String, String)>>(query.unwrap_or_default())
            .map_err(|error| ApiError::bad_request(format!("invalid query: {error}")))?;
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => {
                Err(ApiError::bad_request(format!("unknown parameter {name:?}: expected one of {}", known.join(", "))))
            }
            None => Ok(Self(pairs)),
        }
    }

    /// Returns the last value under `name`; an empty one counts as none.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns all values under `name`: repeated, or separated by commas.
    pub(super) fn get_all(&self, name: &str) -> Vec<&str> {
        let values = self.0.iter().filter(|(known, _)| known == name).flat_map(|(_, value)| value.split(','));
        values.map(str::trim).filter(|value| !value.is_empty()).collect()
    }

    /// Checks that `name`, if it is present, is one of `known`.
    ///
    /// # Errors
    /// Any other value.
    pub(super) fn one_of(&self, name: &str, known: &[String]) -> Result<(), ApiError> {
        match self.get(name).filter(|value| !known.iter().any(|known| known == value)) {
            Some(value) => {
                Err(ApiError::bad_request(format!("invalid {name} {value:?}: expected one of {}", known.join(", "))))
            }
            None => Ok(()),
        }
    }

    /// Reports whether `name` is 1 or true.
    ///
    /// # Errors
    /// Any other value.
    pub(super) fn get_flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true") => Ok(true),
            Some(other) => Err(ApiError::bad_request(format!("invalid {name} {other:?}: expected 1 or 0"))),
        }
    }

    /// Returns a number of 1 to `most`, or `usual`.
    ///
    /// # Errors
    /// Any other value.
    pub(super) fn get_count(&self, name: &str, usual: usize, most: usize) -> Result<usize, ApiError> {
        let Some(text) = self.get(name) else { return Ok(usual) };
        let count = text.parse().ok().filter(|count| (1..=most).contains(count));
        count.ok_or_else(|| {
            ApiError::bad_request(format!("invalid {name} {text:?}: expected a number from 1 to {most}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ApiError, QueryParams};

    #[test]
    fn what_is_not_understood_is_named() {
        let known = ["limit", "live", "tool"];
        let params = QueryParams::from_query(Some("limit=5&live=1&tool=a,b&tool=%20c"), &known).unwrap();
        assert_eq!(params.get_count("limit", 1, 9), Ok(5));
        assert_eq!(params.get_flag("live"), Ok(true));
        assert_eq!(params.get_all("tool"), ["a", "b", "c"]);
        for (query, name) in [("limt=5", "limt"), ("limit=5&x", "x")] {
            let problem = format!("unknown parameter {name:?}: expected one of limit, live, tool");
            assert_eq!(
                QueryParams::from_query(Some(query), &known).err(),
                Some(ApiError::bad_request(problem)),
                "{query}"
            );
        }
        for query in ["limit=0", "limit=10", "limit=x"] {
            let params = QueryParams::from_query(Some(query), &known).unwrap();
            assert!(format!("{:?}", params.get_count("limit", 1, 9)).contains("from 1 to 9"), "{query}");
        }
        let words = ["a", "b"].map(str::to_owned);
        assert_eq!(QueryParams::from_query(Some("tool=b"), &known).unwrap().one_of("tool", &words), Ok(()));
        assert_eq!(
            QueryParams::from_query(Some("tool=c"), &known).unwrap().one_of("tool", &words),
            Err(ApiError::bad_request("invalid tool \"c\": expected one of a, b"))
        );
        assert!(QueryParams::from_query(Some("live=maybe"), &known).unwrap().get_flag("live").is_err());
    }
}
