//! JSON of a `Serialize` value in which every number is one: `serde_json` writes `null` for a NaN or
//! an infinity, and the loss would show only at the consumer (contract §1.4).

use std::cell::RefCell;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// Why a value has no JSON: where in it, as the names from the inside out, and what serde says.
pub(super) struct Unwritable {
    path: Vec<String>,
    pub(super) problem: String,
}

impl Unwritable {
    /// The RFC 6901 pointer of the field, in a value whose own is `base`.
    pub(super) fn pointer(&self, base: &str) -> String {
        let mut pointer = base.to_owned();
        for name in self.path.iter().rev() {
            pointer.push('/');
            pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        }
        pointer
    }
}

/// The compact JSON of `value`.
pub(super) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Unwritable> {
    let mut json = Vec::with_capacity(128);
    let path = Path::default();
    let mut serializer = serde_json::Serializer::new(&mut json);
    let written = value.serialize(Finite {
        inner: &mut serializer,
        path: &path,
    });
    match written {
        Ok(()) => Ok(json),
        Err(error) => Err(Unwritable {
            path: path.0.into_inner(),
            problem: error.to_string(),
        }),
    }
}

/// The names on the way out of a value that could not be written; empty as long as all goes well.
#[derive(Default)]
struct Path(RefCell<Vec<String>>);

impl Path {
    /// Notes `name` where `result` is an error.
    fn through<T, E>(&self, result: Result<T, E>, name: impl FnOnce() -> String) -> Result<T, E> {
        if result.is_err() {
            self.0.borrow_mut().push(name());
        }
        result
    }
}

/// Hands everything on to `inner`, numbers that are none excepted.
struct Finite<'p, S> {
    inner: S,
    path: &'p Path,
}

/// A value that is written through [`Finite`].
struct Through<'p, 'v, T: ?Sized> {
    value: &'v T,
    path: &'p Path,
}

impl<T: Serialize + ?Sized> Serialize for Through<'_, '_, T> {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Finite {
            inner: serializer,
            path: self.path,
        })
    }
}

/// The elements of a value, written through [`Finite`].
struct Elements<'p, C> {
    inner: C,
    path: &'p Path,
    /// How many came before; the name of a sequence's element.
    index: usize,
    /// The key of the map's entry that is being written, as far as it could be read.
    key: Option<String>,
}

impl<'p, C> Elements<'p, C> {
    fn of(inner: C, path: &'p Path) -> Self {
        Self {
            inner,
            path,
            index: 0,
            key: None,
        }
    }

    #[inline]
    fn through<'v, T: ?Sized>(&self, value: &'v T) -> Through<'p, 'v, T> {
        Through {
            value,
            path: self.path,
        }
    }
}

macro_rules! hand_on {
    ($($method:ident: $type:ty),* $(,)?) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            self.inner.$method(value)
        }
    )*};
}

impl<'p, S: Serializer> Serializer for Finite<'p, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Elements<'p, S::SerializeSeq>;
    type SerializeTuple = Elements<'p, S::SerializeTuple>;
    type SerializeTupleStruct = Elements<'p, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Elements<'p, S::SerializeTupleVariant>;
    type SerializeMap = Elements<'p, S::SerializeMap>;
    type SerializeStruct = Elements<'p, S::SerializeStruct>;
    type SerializeStructVariant = Elements<'p, S::SerializeStructVariant>;

    hand_on! {
        serialize_bool: bool,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_char: char, serialize_str: &str,
        serialize_unit_struct: &'static str,
    }

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        finite(value.is_finite(), value)?;
        self.inner.serialize_f32(value)
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        finite(value.is_finite(), value)?;
        self.inner.serialize_f64(value)
    }

    /// JSON has no bytes. Written as numbers they would be what no peer expects, and base64 by our
    /// own choice would not be read back into the same type.
    fn serialize_bytes(self, _: &[u8]) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom(
            "bytes have no place in JSON: write them as a base64 string (contract §1.4)",
        ))
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let path = self.path;
        self.inner.serialize_some(&Through { value, path })
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let path = self.path;
        self.inner
            .serialize_newtype_struct(name, &Through { value, path })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let path = self.path;
        let through = Through { value, path };
        let written = self
            .inner
            .serialize_newtype_variant(name, index, variant, &through);
        path.through(written, || variant.to_owned())
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Ok(Elements::of(self.inner.serialize_seq(len)?, self.path))
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        Ok(Elements::of(self.inner.serialize_tuple(len)?, self.path))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        let inner = self.inner.serialize_tuple_struct(name, len)?;
        Ok(Elements::of(inner, self.path))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        let inner = self
            .inner
            .serialize_tuple_variant(name, index, variant, len)?;
        Ok(Elements::of(inner, self.path))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Ok(Elements::of(self.inner.serialize_map(len)?, self.path))
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        Ok(Elements::of(
            self.inner.serialize_struct(name, len)?,
            self.path,
        ))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        let inner = self
            .inner
            .serialize_struct_variant(name, index, variant, len)?;
        Ok(Elements::of(inner, self.path))
    }

    fn collect_str<T: std::fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

fn finite<E: serde::ser::Error>(is_finite: bool, value: impl std::fmt::Display) -> Result<(), E> {
    if is_finite {
        return Ok(());
    }
    Err(E::custom(format_args!("{value} is no JSON number")))
}

macro_rules! elements {
    ($($trait:ident::$method:ident),* $(,)?) => {$(
        impl<C: $trait> $trait for Elements<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                let through = self.through(value);
                let written = self.inner.$method(&through);
                self.path.through(written, || self.index.to_string())?;
                self.index += 1;
                Ok(())
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        }
    )*};
}

elements! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

macro_rules! fields {
    ($($trait:ident),* $(,)?) => {$(
        impl<C: $trait> $trait for Elements<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), C::Error> {
                let through = self.through(value);
                let written = self.inner.serialize_field(name, &through);
                self.path.through(written, || name.to_owned())
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), C::Error> {
                self.inner.skip_field(name)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        }
    )*};
}

fields!(SerializeStruct, SerializeStructVariant);

impl<C: SerializeMap> SerializeMap for Elements<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.key = name_of(key);
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        let through = self.through(value);
        let written = self.inner.serialize_value(&through);
        let key = self.key.take();
        self.path.through(written, || key.unwrap_or_default())
    }

    #[inline]
    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), C::Error> {
        let through = self.through(value);
        let written = self.inner.serialize_entry(key, &through);
        self.path
            .through(written, || name_of(key).unwrap_or_default())
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}

/// A map's key as text.
fn name_of<T: Serialize + ?Sized>(key: &T) -> Option<String> {
    let json = serde_json::to_string(key).ok()?;
    Some(serde_json::from_str(&json).unwrap_or(json))
}
