//! Whether a file with a secret is open to everyone.

use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

/// Others may write it.
const WRITTEN: u32 = 0o002;
/// Others may read it.
const READ: u32 = 0o004;

/// The mode of a file that everyone can read or write, which no secret may be.
///
/// A file in a volume of the kubelet's (Secret, projected) may be readable by
/// everyone, as it is by default: it is root's, only the containers that mount
/// the volume see it, and without an `fsGroup` no other mode lets a process
/// that is not root read it.
#[must_use]
pub fn open_mode(path: &Path, metadata: &Metadata) -> Option<u32> {
    let mode = metadata.permissions().mode() & 0o7777;
    let refused = mode & WRITTEN != 0 || mode & READ != 0 && !is_in_a_volume(path);
    refused.then_some(mode)
}

/// Whether the kubelet wrote it. Files of its volumes are links into a
/// directory beside them, `..2026_11_30_14_00_00.123`, to which `..data` leads:
/// so all of a volume changes at once.
fn is_in_a_volume(path: &Path) -> bool {
    let Ok(real) = fs::canonicalize(path) else {
        return false;
    };
    real.ancestors().any(|directory| {
        is_dated(directory)
            && directory.parent().is_some_and(|volume| {
                fs::canonicalize(volume.join("..data")).is_ok_and(|data| data == directory)
            })
    })
}

fn is_dated(directory: &Path) -> bool {
    let Some(Component::Normal(name)) = directory.components().next_back() else {
        return false;
    };
    name != "..data" && name.as_encoded_bytes().starts_with(b"..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("hapax-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn file(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "secret").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn check(path: &Path, expected: Option<u32>) {
        let metadata = File::open(path).unwrap().metadata().unwrap();
        assert_eq!(open_mode(path, &metadata), expected, "{}", path.display());
    }

    #[test]
    fn what_everyone_can_read_or_write_is_open() {
        let folder = Folder::new("open");
        check(&folder.file("owner", 0o600), None);
        check(&folder.file("group", 0o660), None);
        check(&folder.file("read", 0o644), Some(0o644));
        check(&folder.file("written", 0o602), Some(0o602));
    }

    #[test]
    fn what_the_kubelet_mounts_may_be_read_by_everyone_and_not_written() {
        let folder = Folder::new("volume");
        let dated = "..2026_11_30_14_00_00.123";
        for (name, mode) in [("tls/key", 0o444), ("token", 0o644), ("written", 0o666)] {
            folder.file(&format!("{dated}/{name}"), mode);
        }
        symlink(dated, folder.0.join("..data")).unwrap();
        for name in ["tls", "token", "written"] {
            symlink(format!("..data/{name}"), folder.0.join(name)).unwrap();
        }
        check(&folder.0.join("tls/key"), None);
        check(&folder.0.join("token"), None);
        check(&folder.0.join("written"), Some(0o666));
    }

    #[test]
    fn what_only_looks_like_such_a_volume_is_none() {
        let folder = Folder::new("dots");
        check(&folder.file("..2026_11_30/key", 0o644), Some(0o644));
        check(&folder.file("..data/key", 0o644), Some(0o644));
    }
}
