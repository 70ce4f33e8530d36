//! What there is to be had: files below a folder, and lists of what is in its folders.

use super::Status;
use super::conditions::Tag;
use super::request::{Path, encoded};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

/// Lines of a list at most.
const LINES: usize = 10_000;
/// Attempts to follow a path while folders of it are moved.
const ATTEMPTS: usize = 16;

/// A folder. Nothing outside of it is ever opened, whatever is asked for and wherever symbolic links lead: the kernel sees to that
/// (openat2, RESOLVE_BENEATH).
pub struct Folder {
    root: OwnedFd,
}

/// What a path leads to.
pub enum Found {
    File {
        file: File,
        len: u64,
        modified: Option<SystemTime>,
        tag: Option<Tag>,
        kind: &'static str,
    },
    /// A list, in HTML.
    List(String),
    /// It is a folder: its path has a slash at its end.
    Elsewhere(Path),
}

impl Folder {
    /// # Errors
    /// There is none, or the kernel is older than Linux 5.6.
    pub fn open(path: &std::path::Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = Folder { root: rustix::fs::open(path, flags, Mode::empty())? };
        folder.open_below(b".")?;
        Ok(folder)
    }

    /// Opens what is below it.
    fn open_below(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        // A pipe or a terminal keeps nobody waiting, and is not read.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut attempts = 0;
        loop {
            match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if attempts < ATTEMPTS => attempts += 1,
                result => return result,
            }
        }
    }

    /// What a path leads to; in a folder its `index.html`, or else a list.
    ///
    /// # Errors
    /// What is to be answered.
    pub fn find(&self, path: &Path) -> Result<Found, Status> {
        let below = path.parts.join(&b'/');
        let opened = self.open_below(if below.is_empty() { b"." } else { &below }).map_err(status)?;
        match kind(&opened)? {
            FileType::RegularFile if !path.folder => {
                file(opened, path.parts.last().map_or(&[], Vec::as_slice))
            }
            FileType::Directory if !path.folder => {
                Ok(Found::Elsewhere(Path { folder: true, ..path.clone() }))
            }
            FileType::Directory => {
                let name = b"index.html";
                let index = [path.parts.as_slice(), &[name.to_vec()]].concat().join(&b'/');
                if let Ok(index) = self.open_below(&index)
                    && kind(&index)? == FileType::RegularFile
                {
                    return file(index, name);
                }
                list(&opened, path).map(Found::List).map_err(status)
            }
            _ => Err(Status::NOT_FOUND),
        }
    }
}

/// What is said of it to others, who need not know why a way leads nowhere.
fn status(e: Errno) -> Status {
    match e {
        Errno::ACCESS | Errno::PERM => Status::FORBIDDEN,
        Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO => {
            Status::NOT_FOUND
        }
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Status::BUSY,
        _ => Status::FAILED,
    }
}

fn kind(opened: &OwnedFd) -> Result<FileType, Status> {
    let stat = rustix::fs::fstat(opened).map_err(status)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

fn file(opened: OwnedFd, name: &[u8]) -> Result<Found, Status> {
    let file = File::from(opened);
    let metadata = file.metadata().map_err(|_| Status::FAILED)?;
    let (number, len) = (metadata.ino(), metadata.len());
    // Unlike the time of its content, nobody can set the one of its last change.
    let seconds = u64::try_from(metadata.ctime()).ok();
    let changed = seconds.map(|seconds| Duration::new(seconds, metadata.ctime_nsec() as u32));
    let tag = changed.map(|changed| Tag::of(number, len, changed, SystemTime::now()));
    Ok(Found::File { len, modified: metadata.modified().ok(), tag, kind: media_type(name), file })
}

fn list(opened: &OwnedFd, path: &Path) -> Result<String, Errno> {
    let mut names = Vec::new();
    let mut more = false;
    for entry in Dir::read_from(opened)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == LINES {
            more = true;
            break;
        }
        names.push((name.to_vec(), entry.file_type() == FileType::Directory));
    }
    names.sort();
    let title = path.parts.iter().fold("/".to_owned(), |title, part| title + &shown(part) + "/");
    let mut text = format!(
        "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body>\n<h1>{title}</h1>\n<ul>\n"
    );
    if !path.parts.is_empty() {
        text += "<li><a href=\"../\">../</a></li>\n";
    }
    for (name, folder) in names {
        let slash = if folder { "/" } else { "" };
        text += &format!("<li><a href=\"{}{slash}\">{}{slash}</a></li>\n", encoded(&name), shown(&name));
    }
    if more {
        text += "<li>and more</li>\n";
    }
    text += "</ul>\n</body>\n</html>\n";
    Ok(text)
}

/// A name in HTML.
fn shown(name: &[u8]) -> String {
    let mut text = String::new();
    for c in String::from_utf8_lossy(name).chars() {
        match c {
            '&' => text += "&amp;",
            '<' => text += "&lt;",
            '>' => text += "&gt;",
            '"' => text += "&quot;",
            '\'' => text += "&#39;",
            c => text.push(c),
        }
    }
    text
}

/// By what follows the last dot of a name.
fn media_type(name: &[u8]) -> &'static str {
    let Some(at) = name.iter().rposition(|c| *c == b'.') else { return "application/octet-stream" };
    match name[at + 1..].to_ascii_lowercase().as_slice() {
        b"html" | b"htm" => "text/html",
        b"txt" | b"log" | b"md" | b"rs" | b"c" | b"h" | b"toml" => "text/plain; charset=utf-8",
        b"css" => "text/css",
        b"csv" => "text/csv",
        b"js" | b"mjs" => "text/javascript",
        b"json" => "application/json",
        b"xml" => "application/xml",
        b"wasm" => "application/wasm",
        b"pdf" => "application/pdf",
        b"png" => "image/png",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"gif" => "image/gif",
        b"svg" => "image/svg+xml",
        b"webp" => "image/webp",
        b"ico" => "image/vnd.microsoft.icon",
        b"mp3" => "audio/mpeg",
        b"ogg" => "audio/ogg",
        b"wav" => "audio/wav",
        b"mp4" => "video/mp4",
        b"webm" => "video/webm",
        b"woff2" => "font/woff2",
        b"zip" => "application/zip",
        b"gz" | b"tgz" => "application/gzip",
        b"tar" => "application/x-tar",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder with `inside` in it, and `secret` beside it; removed at the end.
    struct Place(std::path::PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = std::env::temp_dir().join(format!("bypath-files-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("inside/sub")).expect("a folder");
            std::fs::write(path.join("secret"), "secret").expect("a file");
            std::fs::write(path.join("inside/a.txt"), "hello").expect("a file");
            Place(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn path(parts: &[&str], folder: bool) -> Path {
        Path { parts: parts.iter().map(|part| part.as_bytes().to_vec()).collect(), folder }
    }

    #[test]
    fn links_lead_where_they_may() {
        let place = Place::new("links");
        let inside = place.0.join("inside");
        for (name, to) in [
            ("out", "../secret"),
            ("far", "/etc/passwd"),
            ("up", ".."),
            ("round", "round"),
            ("good", "sub/../a.txt"),
            ("sub/back", "../a.txt"),
        ] {
            symlink(to, inside.join(name)).expect("a link");
        }
        let folder = Folder::open(&inside).expect("a folder");
        for parts in [&["good"][..], &["sub", "back"], &["a.txt"]] {
            let Ok(Found::File { len: 5, .. }) = folder.find(&path(parts, false)) else {
                panic!("{parts:?}")
            };
        }
        for parts in
            [&["out"][..], &["far"], &["up", "secret"], &["up"], &["round"], &["nothing"], &["a.txt", "b"]]
        {
            let found = folder.find(&path(parts, false)).map(|_| ());
            assert_eq!(found, Err(Status::NOT_FOUND), "{parts:?}");
        }
        // What is no folder has no slash.
        assert_eq!(folder.find(&path(&["a.txt"], true)).map(|_| ()), Err(Status::NOT_FOUND));
        // As if the path had not been looked at before.
        assert_eq!(folder.find(&path(&["..", "secret"], false)).map(|_| ()), Err(Status::NOT_FOUND));
    }

    #[test]
    fn folders_are_listed_unless_they_have_an_index() {
        let place = Place::new("lists");
        let inside = place.0.join("inside");
        std::fs::write(inside.join("<b>&\"x\".txt"), "").expect("a file");
        let folder = Folder::open(&inside).expect("a folder");
        let Ok(Found::List(text)) = folder.find(&path(&[], true)) else { panic!("a list") };
        assert!(text.contains("<a href=\"sub/\">sub/</a>"), "{text}");
        assert!(
            text.contains("<a href=\"%3Cb%3E%26%22x%22.txt\">&lt;b&gt;&amp;&quot;x&quot;.txt</a>"),
            "{text}"
        );
        assert!(!text.contains("secret") && !text.contains("../"), "{text}");
        let Ok(Found::Elsewhere(to)) = folder.find(&path(&["sub"], false)) else { panic!("elsewhere") };
        assert_eq!(to.encoded(), "/sub/");
        std::fs::write(inside.join("sub/index.html"), "<p>").expect("a file");
        let Ok(Found::File { kind, len: 3, .. }) = folder.find(&path(&["sub"], true)) else {
            panic!("an index")
        };
        assert_eq!(kind, "text/html");
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        let place = Place::new("pipes");
        let inside = place.0.join("inside");
        nix::unistd::mkfifo(&inside.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let _socket = std::os::unix::net::UnixListener::bind(inside.join("socket")).expect("a socket");
        let folder = Folder::open(&inside).expect("a folder");
        for name in ["pipe", "socket"] {
            assert_eq!(folder.find(&path(&[name], false)).map(|_| ()), Err(Status::NOT_FOUND), "{name}");
        }
    }
}
