variable "rotate" {
  description = "Whether this run gives the machine another credential."
  type        = bool
  default     = false
}

resource "sallyport_socket" "shop" {
  name = "shop"
}

resource "sallyport_tunnel" "web" {
  socket_id = sallyport_socket.shop.id
}

ephemeral "sallyport_tunnel_credential" "web" {
  socket_id = sallyport_socket.shop.id
  tunnel_id = sallyport_tunnel.web.id
  rotate    = var.rotate
}
