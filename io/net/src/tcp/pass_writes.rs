//! A macro for connections that change reads and pass writes through.

/// Implements [`AsyncWrite`](tokio::io::AsyncWrite) for a wrapper by passing everything on to one of its fields:
/// `pass_writes!(Wrapper<S>, inner, S)`, or `pass_writes!(Wrapper, 0)` where the field's type is no parameter.
#[macro_export]
macro_rules! pass_writes {
    ($wrapper:ty, $field:tt $(, $inner:ident)?) => {
        impl $(<$inner: ::tokio::io::AsyncWrite + ::std::marker::Unpin>)? ::tokio::io::AsyncWrite for $wrapper {
            fn poll_write(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                buf: &[u8],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                ::tokio::io::AsyncWrite::poll_write(::std::pin::Pin::new(&mut self.$field), cx, buf)
            }

            fn poll_write_vectored(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                bufs: &[::std::io::IoSlice<'_>],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                ::tokio::io::AsyncWrite::poll_write_vectored(::std::pin::Pin::new(&mut self.$field), cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                ::tokio::io::AsyncWrite::is_write_vectored(&self.$field)
            }

            fn poll_flush(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                ::tokio::io::AsyncWrite::poll_flush(::std::pin::Pin::new(&mut self.$field), cx)
            }

            fn poll_shutdown(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                ::tokio::io::AsyncWrite::poll_shutdown(::std::pin::Pin::new(&mut self.$field), cx)
            }
        }
    };
}
