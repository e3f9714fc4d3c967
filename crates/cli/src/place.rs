//! Where a command writes.

use std::path::Path;

use plimsoll::{Result, StoreUrl};
use plimsoll_bench::Figures;
use tempfile::TempDir;

/// Where a command writes, and what kind of filesystem that is on, if it is a file and the system
/// tells.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) filesystem: Option<String>,
    /// Removed with everything in it when this is dropped.
    folder: Option<TempDir>,
}

impl Place {
    /// The store that a URL names.
    pub(crate) fn named(url: &str) -> Result<Self> {
        let filesystem = match StoreUrl::parse(url)? {
            StoreUrl::Memory | StoreUrl::Postgres(_) => None,
            StoreUrl::Sqlite { path, .. } => path.parent().and_then(filesystem),
        };
        Ok(Self {
            url: url.into(),
            filesystem,
            folder: None,
        })
    }

    /// A new file in a new folder in the current one. Temporary files are often kept in memory, where
    /// there is no disk to measure.
    pub(crate) fn fresh(what: &str) -> std::io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(&format!(".plimsoll-{what}-"))
            .tempdir_in(".")?;
        // From here, so that nothing in the path of this folder can be taken for a part of the URL.
        let name = folder.path().file_name().unwrap_or_default();
        let path = Path::new(name).join(format!("{what}.db"));
        Ok(Self {
            url: format!("sqlite:{}", path.display()),
            filesystem: filesystem(folder.path()),
            folder: Some(folder),
        })
    }

    /// The new folder, if there is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(TempDir::path)
    }

    /// Leaves a new file where it is.
    pub(crate) fn keep(mut self) {
        if let Some(folder) = &mut self.folder {
            folder.disable_cleanup(true);
        }
    }
}

/// The filesystem of figures that are meant to be of a disk and are not.
pub(crate) fn is_memory(figures: &Figures) -> Option<&str> {
    let filesystem = figures.word("filesystem")?;
    let durable = figures.word("durability") == Some("disk");
    (durable && ["tmpfs", "ramfs"].contains(&filesystem)).then_some(filesystem)
}

/// The kind of filesystem that a folder is on.
pub(crate) fn filesystem(folder: &Path) -> Option<String> {
    let here = Path::new(".");
    let folder = if folder == Path::new("") {
        here
    } else {
        folder
    };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    filesystem_in(&mounts, &folder.canonicalize().ok()?)
}

/// The kind of the mount that is nearest above a folder. Of two at the same place, the later one
/// hides the earlier.
fn filesystem_in(mounts: &str, folder: &Path) -> Option<String> {
    let above = mounts.lines().filter_map(|line| {
        // id, parent, device, root, place, options, some more, "-", kind, source, options
        let (mount, kind) = line.split_once(" - ")?;
        let place = mount.split(' ').nth(4)?.replace("\\040", " ");
        let kind = kind.split(' ').next()?;
        let depth = Path::new(&place).components().count();
        folder.starts_with(&place).then_some((depth, kind))
    });
    let nearest = above.max_by_key(|(depth, _)| *depth);
    nearest.map(|(_, kind)| kind.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /tmp rw,nosuid shared:5 - tmpfs tmpfs rw,size=2g
31 22 0:27 / /data\\040disk rw - ext4 /dev/vdb rw
32 31 0:28 / /data\\040disk rw - xfs /dev/vdc rw
";

    #[test]
    fn the_nearest_and_latest_mount_counts() {
        for (folder, kind) in [
            ("/", "ext4"),
            ("/home/ada", "ext4"),
            ("/tmp", "tmpfs"),
            ("/tmp/bench", "tmpfs"),
            ("/tmpfiles", "ext4"),
            ("/data disk/x", "xfs"),
        ] {
            let found = filesystem_in(MOUNTS, Path::new(folder));
            assert_eq!(found.as_deref(), Some(kind), "{folder}");
        }
        assert_eq!(filesystem_in("", Path::new("/")), None);
    }
}
