use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::{Schema, SchemaError};

/// Where schemas come from, by URN.
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// The schema for the payload of `urn`; `None` where there is none, and nothing is checked.
    fn schema_for(&self, urn: &str) -> Option<&Schema>;
}

/// Schemas in memory.
///
/// ```
/// use babelqueue_core::schema::{Schema, Schemas};
///
/// let schemas = Schemas::new()
///     .with("urn:babel:orders:created", Schema::parse(r#"{"type": "object"}"#)?);
/// # Ok::<_, babelqueue_core::schema::SchemaError>(())
/// ```
#[derive(Debug, Default)]
pub struct Schemas {
    by_urn: HashMap<String, Schema>,
}

impl Schemas {
    /// No schema at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with `schema` for `urn`, in the place of an earlier one.
    #[must_use]
    pub fn with(mut self, urn: impl Into<String>, schema: Schema) -> Self {
        self.by_urn.insert(urn.into(), schema);
        self
    }
}

impl Provider for Schemas {
    fn schema_for(&self, urn: &str) -> Option<&Schema> {
        self.by_urn.get(urn)
    }
}

/// Schemas in files, listed in a `registry.json` beside them (contract §17A, Registry).
///
/// ```json
/// {"schemas": [{"urn": "urn:babel:orders:created", "schema": "orders/created.json"}]}
/// ```
#[derive(Debug)]
pub struct Registry {
    schemas: Schemas,
}

#[derive(Deserialize)]
struct Manifest {
    schemas: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    urn: String,
    schema: PathBuf,
}

impl Registry {
    /// Reads the manifest and every schema that it lists; `path` is the manifest, or the folder in
    /// which it stands as `registry.json`. Blocks on the disk: call it at start.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or is not what it should be, an empty or repeated URN, or a path
    /// that leads out of the manifest's folder, by `..`, from the root or over a link.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RegistryError> {
        let path = path.as_ref();
        let manifest = if path.is_dir() {
            path.join("registry.json")
        } else {
            path.to_owned()
        };
        let folder = manifest.parent().unwrap_or(Path::new(""));
        let mut schemas = Schemas::new();
        for Entry { urn, schema } in entries(&manifest)? {
            if urn.trim().is_empty() {
                return Err(RegistryError::EmptyUrn { manifest });
            }
            if schemas.schema_for(&urn).is_some() {
                return Err(RegistryError::RepeatedUrn { manifest, urn });
            }
            let file = inside(folder, &schema)?;
            let parsed = Schema::parse(&read(&file)?).map_err(|source| RegistryError::Schema {
                urn: urn.clone(),
                file,
                source,
            })?;
            schemas = schemas.with(urn, parsed);
        }
        Ok(Self { schemas })
    }
}

impl Provider for Registry {
    fn schema_for(&self, urn: &str) -> Option<&Schema> {
        self.schemas.schema_for(urn)
    }
}

/// Why a registry cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A file cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manifest is not of the form that it should have.
    #[error("{} is no registry: expected {{\"schemas\": [{{\"urn\", \"schema\"}}]}}", manifest.display())]
    Manifest {
        /// The manifest.
        manifest: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// An entry has a blank URN.
    #[error("{} has an entry with an empty `urn`", manifest.display())]
    EmptyUrn {
        /// The manifest.
        manifest: PathBuf,
    },
    /// Two entries have the same URN.
    #[error("{} lists {urn:?} twice", manifest.display())]
    RepeatedUrn {
        /// The manifest.
        manifest: PathBuf,
        /// The URN.
        urn: String,
    },
    /// A schema's path leads out of the manifest's folder.
    #[error("the schema path {} leads out of the registry's folder", path.display())]
    Escapes {
        /// The path, as the manifest has it.
        path: PathBuf,
    },
    /// A schema cannot be.
    #[error("{} is no schema for {urn:?}", file.display())]
    Schema {
        /// The URN that it is for.
        urn: String,
        /// The schema's file.
        file: PathBuf,
        /// What is wrong.
        source: SchemaError,
    },
}

fn entries(manifest: &Path) -> Result<Vec<Entry>, RegistryError> {
    match serde_json::from_str::<Manifest>(&read(manifest)?) {
        Ok(parsed) => Ok(parsed.schemas),
        Err(source) => Err(RegistryError::Manifest {
            manifest: manifest.to_owned(),
            source,
        }),
    }
}

fn read(file: &Path) -> Result<String, RegistryError> {
    std::fs::read_to_string(file).map_err(|source| RegistryError::Read {
        file: file.to_owned(),
        source,
    })
}

/// The file at `path` in `folder`, which it must not leave.
fn inside(folder: &Path, path: &Path) -> Result<PathBuf, RegistryError> {
    let escapes = || RegistryError::Escapes {
        path: path.to_owned(),
    };
    let plain = |component| matches!(component, Component::Normal(_) | Component::CurDir);
    if !path.components().all(plain) {
        return Err(escapes());
    }
    let resolve = |path: &Path| {
        // The parent of a bare file name is the empty path, which no file system knows.
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        path.canonicalize().map_err(|source| RegistryError::Read {
            file: path.to_owned(),
            source,
        })
    };
    let file = resolve(&folder.join(path))?;
    if file.starts_with(resolve(folder)?) {
        Ok(file)
    } else {
        Err(escapes())
    }
}
