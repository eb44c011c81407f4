//! Measurements on disk: a text file for each call, under `tuned` in the cache folder.
//!
//! The first line holds a digest of all that follows, and what follows names the call in full: a file that is damaged, or
//! that is another call's, is as good as none and is written anew. Files come by rename, so processes may share the folder.
//! Trouble with the disk costs a measurement and nothing else.

use permalloy_ir::MixHash;
use std::fmt::Write as _;
use std::fs;
use std::hash::BuildHasher;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const MAGIC: &str = "permalloy-tuned 1 ";
const TIMES: &str = "times ";

/// The seconds that a call takes by each of its routes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Times(pub Vec<(String, f64)>);

impl Times {
    /// `native 0.081 ms, embedding::one_hot 0.124 ms`
    pub fn text(&self) -> String {
        let one = |(route, seconds): &(String, f64)| {
            format!("{} {} ms", route.trim_start_matches("decompose:"), milliseconds(*seconds))
        };
        self.0.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn line(&self) -> String {
        // Nanoseconds are exact in text.
        let one = |(route, seconds): &(String, f64)| format!("{route} {:.0} ns", seconds * 1e9);
        self.0.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn of_line(line: &str) -> Option<Times> {
        let one = |part: &str| {
            let (route, time) = part.trim().strip_suffix(" ns")?.rsplit_once(' ')?;
            let nanoseconds: u64 = time.parse().ok()?;
            Some((route.to_string(), nanoseconds as f64 / 1e9))
        };
        line.split(',').map(one).collect::<Option<_>>().map(Times)
    }
}

/// Three digits that count.
fn milliseconds(seconds: f64) -> String {
    let ms = seconds * 1e3;
    let digits = if ms >= 100.0 {
        0
    } else if ms >= 10.0 {
        1
    } else if ms >= 1.0 {
        2
    } else {
        3
    };
    format!("{ms:.digits$}")
}

/// What a measurement is of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// `aten.embedding_dense_backward.default`
    pub operator: String,
    /// `cpu: NAME`, or that of another device.
    pub device: String,
    /// Versions and options that matter.
    pub with: String,
    /// The call in the text form of graphs.
    pub call: String,
}

impl Key {
    fn text(&self) -> String {
        format!("operator {}\non {}\nwith {}\n", self.operator, self.device, self.with)
    }

    fn file(&self) -> String {
        format!("{}-{}.txt", self.operator, digest(&format!("{}{}", self.text(), self.call)))
    }
}

/// A folder of measurements.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// In `tuned` under the cache folder.
    pub fn under(cache: &Path) -> Store {
        Store { folder: cache.join("tuned") }
    }

    pub fn load(&self, key: &Key) -> Option<Times> {
        let (found, times) = read(&self.folder.join(key.file()))?;
        (found == *key).then_some(times)
    }

    pub fn keep(&self, key: &Key, times: &Times) {
        let body = format!("{}{TIMES}{}\n{}", key.text(), times.line(), key.call);
        let text = format!("{MAGIC}{}\n{body}", digest(&body));
        // A folder that takes no files is no reason not to compile: the next process measures again.
        let _ = write(&self.folder, &key.file(), &text);
    }

    /// All that is kept of an operator, in the order of the files' names.
    pub fn of_operator(&self, operator: &str) -> Vec<(Key, Times)> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return vec![] };
        let ours = |name: &str| name.strip_prefix(operator).is_some_and(|rest| rest.starts_with('-'));
        let mut paths: Vec<PathBuf> =
            entries.flatten().filter(|e| e.file_name().to_str().is_some_and(ours)).map(|e| e.path()).collect();
        paths.sort();
        paths.iter().filter_map(|p| read(p)).filter(|(key, _)| key.operator == operator).collect()
    }
}

fn read(path: &Path) -> Option<(Key, Times)> {
    if !trusted(path) {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    let (head, body) = text.split_once('\n')?;
    if head.strip_prefix(MAGIC)? != digest(body) {
        return None;
    }
    let mut lines = body.splitn(5, '\n');
    let mut field = |name: &str| lines.next()?.strip_prefix(name).map(str::to_string);
    let (operator, device, with) = (field("operator ")?, field("on ")?, field("with ")?);
    let times = Times::of_line(&field(TIMES)?)?;
    Some((Key { operator, device, with, call: lines.next()?.to_string() }, times))
}

/// It belongs to this user, and nobody else may write to it.
#[cfg(unix)]
fn trusted(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(file), Ok(own)) = (fs::metadata(path), fs::metadata("/proc/self")) else { return false };
    file.uid() == own.uid() && file.mode() & 0o022 == 0
}

#[cfg(not(unix))]
fn trusted(_: &Path) -> bool {
    true
}

/// Writes a file that its owner alone may read, so that no other process ever sees a part of it.
fn write(folder: &Path, name: &str, text: &str) -> std::io::Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut make = fs::DirBuilder::new();
    let mut open = fs::OpenOptions::new();
    open.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        make.mode(0o700);
        open.mode(0o600);
    }
    make.recursive(true).create(folder)?;
    let mine = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{}-{mine}-{name}", std::process::id()));
    let written = open.open(&temporary).and_then(|mut f| f.write_all(text.as_bytes()));
    let moved = written.and_then(|()| fs::rename(&temporary, folder.join(name)));
    if moved.is_err() {
        // Whatever is left of it is of no use; that it cannot be removed either is no more trouble.
        let _ = fs::remove_file(&temporary);
    }
    moved
}

/// 32 hexadecimal digits. Against damage and mix-ups, not against an opponent: see [`trusted`].
fn digest(text: &str) -> String {
    let half = |seed: &str| MixHash::default().hash_one((seed, text));
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(out, "{:016x}{:016x}", half("low"), half("high"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("permalloy-tuned-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn key(call: &str) -> Key {
        let [operator, device, with] = ["aten.sum.default", "cpu: one", "torch 2"].map(str::to_string);
        Key { operator, device, with, call: call.to_string() }
    }

    fn times() -> Times {
        Times(vec![("native".into(), 81e-6), ("decompose:sum".into(), 0.1245)])
    }

    #[test]
    fn what_is_kept_is_found_again_by_the_same_key_alone() {
        let root = folder("found");
        let store = Store::under(&root);
        store.keep(&key("graph 1\n"), &times());
        assert_eq!(store.load(&key("graph 1\n")), Some(times()));
        assert_eq!(store.load(&key("graph 2\n")), None);
        assert_eq!(store.of_operator("aten.sum.default"), [(key("graph 1\n"), times())]);
        assert_eq!(store.of_operator("aten.sum"), []);
        assert_eq!(times().text(), "native 0.081 ms, sum 124 ms");
        assert_eq!(fs::read_dir(root.join("tuned")).unwrap().count(), 1, "no temporary file is left");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_damaged_or_foreign_file_is_ignored_and_rewritten() {
        let root = folder("damaged");
        let store = Store::under(&root);
        store.keep(&key("graph 1\n"), &times());
        let path = root.join("tuned").join(key("graph 1\n").file());
        let good = fs::read_to_string(&path).unwrap();
        let damaged = [good.replace("81000 ns", "81001 ns"), good[..good.len() - 3].to_string(), String::new()];
        for text in damaged {
            fs::write(&path, &text).unwrap();
            assert_eq!(store.load(&key("graph 1\n")), None, "{text}");
            store.keep(&key("graph 1\n"), &times());
            assert_eq!(store.load(&key("graph 1\n")), Some(times()));
        }
        // Whole, but of another call.
        fs::copy(&path, root.join("tuned").join(key("graph 2\n").file())).unwrap();
        assert_eq!(store.load(&key("graph 2\n")), None);
        fs::remove_dir_all(root).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_write_to_is_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let root = folder("others");
        let store = Store::under(&root);
        store.keep(&key("g\n"), &times());
        let path = root.join("tuned").join(key("g\n").file());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert_eq!(store.load(&key("g\n")), None);
        fs::remove_dir_all(root).unwrap();
    }
}
