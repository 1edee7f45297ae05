data "sallyport_socket" "shop" {
  name = "shop"
}

output "url" {
  value = data.sallyport_socket.shop.url
}
