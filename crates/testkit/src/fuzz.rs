//! Fuzzing of everything that reads input of others, with mutated input.
//!
//! Works on stable Rust: no coverage steers it, so the corpus next to it holds one input for each thing a decoder knows and further results
//! of guided runs, and the dictionaries hold the words that decide. `cargo xtask fuzz` runs it for minutes, the tests run the first
//! inputs of a seed.

mod kept_inputs;
mod mutate;
mod shell;
mod targets;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub use targets::TARGETS;

/// Decoder with the words that it knows.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name; its corpus is in a folder of that name.
    pub name: &'static str,
    /// Number of inputs for a test that takes some ten seconds.
    pub short: u64,
    /// Function that panics for a finding.
    pub decode: fn(&[u8]),
    words: &'static [&'static str],
}

impl FuzzTarget {
    /// Loads the first inputs: the empty one, every file of the target's folder, in order, and the results of guided runs.
    ///
    /// # Errors
    /// The folder or a file of it cannot be read.
    pub fn load_corpus(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut corpus = vec![Vec::new()];
        corpus.extend(file_contents(&corpora_dir().join(self.name))?);
        corpus.extend(self.found_inputs()?);
        Ok(corpus)
    }

    /// Returns the [kept](Self::keep_inputs) results of guided runs; nothing if there is no file of them.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn found_inputs(&self) -> io::Result<Vec<Vec<u8>>> {
        match fs::read_to_string(self.found_file()) {
            Ok(text) => kept_inputs::parse_inputs(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Keeps the results of a guided run, which are the files of a folder, in place of those that were kept before.
    ///
    /// # Errors
    /// The folder or a file of it cannot be read, or the file of kept inputs not written.
    pub fn keep_inputs(&self, folder: &Path) -> io::Result<()> {
        fs::write(self.found_file(), kept_inputs::format_inputs(file_contents(folder)?))
    }

    fn found_file(&self) -> PathBuf {
        corpora_dir().join(format!("{}.found", self.name))
    }

    /// Returns its words in the form in which libFuzzer reads a dictionary: one a line, quoted, with bytes that are no plain text in hex.
    pub fn libfuzzer_dictionary(&self) -> String {
        let quoted = |word: &&str| {
            let bytes = word.bytes().map(|byte| match byte {
                b'"' | b'\\' => format!("\\{}", char::from(byte)),
                b' '..=b'~' => char::from(byte).to_string(),
                _ => format!("\\x{byte:02X}"),
            });
            format!("\"{}\"\n", bytes.collect::<String>())
        };
        self.words.iter().map(quoted).collect()
    }

    /// Makes the input with this number: the corpus as it is, then one of it after some changes. Each can be made without those before it.
    pub fn make_input(&self, corpus: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
        let kept = usize::try_from(number).ok().and_then(|number| corpus.get(number));
        kept.cloned()
            .unwrap_or_else(|| mutate::mutate_input(corpus, self.words, &mut mutate::FuzzRng::new(seed, number)))
    }
}

fn corpora_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_corpus")
}

/// Reads the files of a folder, in order of their names.
fn file_contents(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let mut paths = paths?;
    paths.sort();
    paths.into_iter().map(fs::read).collect()
}
