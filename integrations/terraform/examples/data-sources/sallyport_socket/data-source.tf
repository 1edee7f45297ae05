data "sallyport_socket" "shop" {
  name = "shop"
}

check "shop" {
  assert {
    condition     = data.sallyport_socket.shop.tunnels_up > 0
    error_message = "No origin of the shop is up."
  }
}
