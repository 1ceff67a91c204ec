// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes sockets in the file system.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::failure::{Failure, Result};

/// How long the path of a socket may be: Linux has room for one byte more, the last of which is zero.
const MAX_PATH: usize = 107;

/// Makes a socket. If that fails, `doing` begins the message.
pub fn listen(path: &Path, doing: impl FnOnce() -> String) -> Result<UnixListener> {
    UnixListener::bind(path).map_err(|error| {
        let failure = Failure::failed(format!("{}: {error}", doing()));
        // The standard library finds that a path is too long.
        if error.kind() != io::ErrorKind::InvalidInput {
            return failure;
        }
        let length = path.as_os_str().len();
        failure.help(format!(
            "a socket's path has at most {MAX_PATH} bytes, and this one {length}: use shorter names, or set XDG_RUNTIME_DIR to a folder with a shorter path"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_too_long_is_told_with_what_helps() {
        let folder = tempfile::TempDir::new().unwrap();
        let of = |length: usize| {
            let path = folder.path().join("s".repeat(length - folder.path().as_os_str().len() - 1));
            listen(&path, || "cannot offer it".to_owned()).map(drop).map_err(|failure| failure.to_string())
        };
        assert_eq!(of(MAX_PATH), Ok(()));
        let failure = of(MAX_PATH + 1).unwrap_err();
        assert!(
            failure.contains("cannot offer it: ") && failure.contains("107 bytes, and this one 108"),
            "{failure}"
        );
        assert!(failure.contains("XDG_RUNTIME_DIR"), "{failure}");
        assert!(!of(MAX_PATH).unwrap_err().contains("bytes"), "it is there already");
    }
}
