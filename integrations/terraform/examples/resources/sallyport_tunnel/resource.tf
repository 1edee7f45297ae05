resource "sallyport_socket" "shop" {
  name = "shop"
}

# Four machines; 2 -> 4 is a number.
resource "sallyport_tunnel" "web" {
  count     = 4
  socket_id = sallyport_socket.shop.id
  name      = "web-${count.index + 1}"
  labels    = { host = "web-${count.index + 1}" }
}
