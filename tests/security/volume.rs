//! A folder of files that change as those of a Kubernetes volume do.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Each file is a link into `..data`, which is a link to the newest version:
/// one rename swaps all of them.
pub(crate) struct Volume {
    folder: PathBuf,
    versions: usize,
}

impl Volume {
    pub(crate) fn new(folder: PathBuf) -> Self {
        fs::create_dir(&folder).unwrap();
        Self {
            folder,
            versions: 0,
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Puts new contents in place; nobody sees some of the old with some of the new.
    pub(crate) fn put(&mut self, files: &[(&str, &str)]) {
        let old = self.version();
        self.versions += 1;
        let new = self.version();
        fs::create_dir(self.folder.join(&new)).unwrap();
        for (name, text) in files {
            let path = self.folder.join(&new).join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (data, swap) = (self.folder.join("..data"), self.folder.join("..data_tmp"));
        symlink(&new, &swap).unwrap();
        fs::rename(&swap, &data).unwrap();
        for (name, _) in files {
            let link = self.folder.join(name);
            if link.symlink_metadata().is_err() {
                symlink(Path::new("..data").join(name), link).unwrap();
            }
        }
        if self.versions > 1 {
            fs::remove_dir_all(self.folder.join(old)).unwrap();
        }
    }

    fn version(&self) -> String {
        format!("..version-{}", self.versions)
    }
}
