resource "sallyport_socket" "shop" {
  name = "shop"
  type = "https"
}

resource "sallyport_origin" "eu" {
  socket_id = sallyport_socket.shop.id
  address   = "10.0.0.7:8443"
  region    = "eu"
  tls       = { server_name = "web.example.com" }
  capacity  = { max_rps = "auto" }
}
